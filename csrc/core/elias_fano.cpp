#include "core/elias_fano.h"

#include <string>

#include "core/error.h"

namespace zen {

void check_shape(const EliasFano& layout, std::span<const uint64_t> words) {
  const auto low = words.first(layout.low_words()), high = words.subspan(layout.low_words());
  if (!padding_is_zero(low, layout.low_bits()) || !padding_is_zero(high, layout.high_bits()))
    throw MalformedMessage("malformed message: Elias-Fano padding is not zero");
  const uint64_t ones = count_ones(high);
  if (ones != layout.count())
    throw MalformedMessage("malformed message: Elias-Fano list of " + std::to_string(ones) +
                           " numbers, expected " + std::to_string(layout.count()));
}

void reject_number(uint64_t number, uint64_t least, uint64_t universe) {
  throw MalformedMessage("malformed message: Elias-Fano number " + std::to_string(number) +
                         ", expected at least " + std::to_string(least) + " and below " +
                         std::to_string(universe));
}

}  // namespace zen
