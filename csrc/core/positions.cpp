#include "core/positions.h"

namespace zen {

void PositionSink::reject(uint64_t position) const {
  throw MalformedMessage("malformed message: position " + std::to_string(position) +
                         ", expected at least " + std::to_string(least_) + " and below " +
                         std::to_string(elements_));
}

}  // namespace zen
