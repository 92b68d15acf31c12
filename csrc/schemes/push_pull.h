// The pattern of all owner-based schemes. They differ in placement, in encodings and in the way the
// sums travel.
//
// Every rank owns a part of the gradient. Push: a rank sends each owner what it lists of that
// owner's part. The owner adds the messages in rank order and rounds once. Pull: its sum, which
// lists whatever any rank listed, goes to everybody. The gradient is cut into chunks, so that one
// chunk is added while the next is on the wire; no result depends on their number.
#pragma once

#include <memory>

#include "schemes/exchange.h"
#include "schemes/pull_pattern.h"

namespace zen {

struct PushPullOptions {
  EncodeOptions push = Choice::cheapest;
  EncodeOptions pull = Choice::cheapest;
  PullPattern (*pattern)(int rank, int size) = point_to_point;
};

// REQUIRES: a placement with one owner per rank. Throws as chunk_ranges() does.
std::unique_ptr<Exchange> make_push_pull(const Context& context, const PushPullOptions& options);

}  // namespace zen
