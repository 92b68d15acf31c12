// Writing messages into the gradient.
//
// The messages of all owners are written together, word after word in the order of the gradient:
// what memory likes best, by far.
#pragma once

#include <span>

#include "core/codec.h"
#include "core/cpu_features.h"
#include "core/gradient.h"
#include "core/placement.h"

namespace zen {

// Writes exactly the listed elements; the other elements of a touched word keep their bits. Message
// i is about shards[i]. Throws InvalidArgument, before anything is written, if the gradient's dtype
// or size is not the messages'. REQUIRES: each message was opened against its shard; no two shards
// have a word in common; nobody else uses these words of the gradient meanwhile.
void decode_write(std::span<const OpenMessage> messages, std::span<const Shard> shards,
                  const Gradient& gradient, Isa isa = preferred_isa());

}  // namespace zen
