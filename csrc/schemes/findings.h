// What the ranks tell one another before they choose how to synchronise a bucket, and how it
// travels.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/look.h"
#include "core/message.h"
#include "schemes/exchange.h"
#include "schemes/transport.h"

namespace zen {

// One exchange that was measured with nothing else in flight, all ranks starting together.
struct Trial {
  uint64_t bucket = 0;       // fingerprint of its key; 0: there was none
  uint64_t candidate = 0;    // that it tried
  double seconds = 0;        // from the first step to the last
  double round_seconds = 0;  // of a round of small messages just before
  StageSeconds stages{};
};

// Of one rank.
struct Findings {
  Look look;           // numel is 0 if the gradient was not looked at
  double listed = -1;  // by this rank the last time, and by the sum of all; -1: not known
  double listed_in_sum = -1;
  Trial trial;
};

// Collective: everybody's findings, by rank; those of this rank come back as the others see them.
// `sample_room` is the most blocks that a look's sample has, the same on all ranks. Throws
// MalformedMessage if a rank sends something else, and as Transport does.
std::vector<Findings> gather(Transport& transport, const Allocate& allocate, const Tag& tag,
                             const Findings& own, size_t sample_room);

// Collective: returns when all ranks have called it.
void meet(Transport& transport, const Allocate& allocate, const Tag& tag);

}  // namespace zen
