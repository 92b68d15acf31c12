#include "schemes/chunks.h"

#include <string>

#include "core/error.h"

namespace zen {

std::vector<WordRange> chunk_ranges(const Context& context, int owners) {
  if (!context.placement) throw InvalidArgument("this scheme needs a placement, got none");
  const Placement& placement = *context.placement;
  if (placement.owners() != owners)
    throw InvalidArgument("the placement has " + std::to_string(placement.owners()) +
                          " owners, the scheme needs " + std::to_string(owners));
  if (placement.numel() != context.gradient.numel)
    throw InvalidArgument("the placement is for " + std::to_string(placement.numel()) +
                          " elements, the gradient has " + std::to_string(context.gradient.numel));
  if (context.chunks < 1 || context.chunks > kMaxChunks)
    throw InvalidArgument("chunks is " + std::to_string(context.chunks) + ": choose 1 to " +
                          std::to_string(kMaxChunks));
  return placement.split(context.chunks);
}

}  // namespace zen
