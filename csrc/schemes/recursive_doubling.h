// Recursive doubling: in step t, ranks 2^t apart swap what they have summed so far, so that after
// log2 n steps everybody has the sum of all.
//
// If n is not a power of two, each of the first n - 2^k pairs of ranks begins by folding the odd
// rank's message into the even rank, which takes part for both and in the end sends the odd rank
// the result. Partial sums travel as float32 and are rounded once, in the last step. A sum is
// always lower ranks + higher ranks, the same tree on all ranks, so every bit is the same
// everywhere.
#pragma once

#include <memory>

#include "schemes/exchange.h"

namespace zen {

// REQUIRES: a placement with a single owner. Throws as chunk_ranges() does.
std::unique_ptr<Exchange> make_recursive_doubling(const Context& context,
                                                  const EncodeOptions& options);

}  // namespace zen
