// The checks and the cutting that all schemes over a placement share.
#pragma once

#include <vector>

#include "schemes/exchange.h"

namespace zen {

// The word ranges of context.chunks. Throws InvalidArgument unless 1 <= context.chunks <=
// kMaxChunks and context.placement fits the gradient and has `owners` owners.
std::vector<WordRange> chunk_ranges(const Context& context, int owners);

}  // namespace zen
