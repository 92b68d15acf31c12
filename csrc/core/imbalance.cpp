#include "core/imbalance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace zen {

double imbalance(std::span<const uint64_t> loads) {
  const uint64_t total = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
  if (total == 0) return 1;
  const uint64_t largest = *std::max_element(loads.begin(), loads.end());
  return static_cast<double>(largest) * static_cast<double>(loads.size()) /
         static_cast<double>(total);
}

double expected_imbalance(int n, double nonzeros, double unit) {
  if (n < 2 || nonzeros <= 0) return 1;
  return 1 + std::sqrt(2 * std::log(n)) * std::sqrt(n * unit / nonzeros);
}

}  // namespace zen
