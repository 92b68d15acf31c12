// Adding the messages of all ranks for one shard.
//
// The n messages are merged 64 slots at a time, straight into the lists of the result: no dense
// copy of the shard exists anywhere.
#pragma once

#include <span>

#include "core/buffer.h"
#include "core/codec.h"
#include "core/cpu_features.h"
#include "core/dtype.h"
#include "core/placement.h"
#include "core/selection.h"

namespace zen {

// Adds the values of each element in float32, in the order of `messages` and starting from the
// first one that lists it; divides by `divisor`; rounds once to `dtype`. The result lists the union
// of the listed elements, zeros included. Throws InvalidArgument if there is no message.
// REQUIRES: every message was opened against `shard`.
ShardSelection merge(std::span<const OpenMessage> messages, const Shard& shard, DType dtype,
                     float divisor, const Allocate& allocate, Isa isa = preferred_isa());

}  // namespace zen
