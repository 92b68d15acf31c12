// The pattern of all owner-based schemes, which differ in placement and encodings only.
//
// Every rank owns a part of the gradient. Push: a rank sends each owner what it lists of that
// owner's part. The owner adds the messages in rank order and rounds once. Pull: it sends the sum,
// which lists whatever any rank listed, to everybody. The gradient is cut into chunks, so that one
// chunk is added while the next is on the wire; no result depends on their number.
#pragma once

#include <memory>

#include "schemes/exchange.h"

namespace zen {

// REQUIRES: a placement with one owner per rank. Throws as chunk_ranges() does.
std::unique_ptr<Exchange> make_push_pull(const Context& context, Choice push, Choice pull);

}  // namespace zen
