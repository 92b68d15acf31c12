// How fast the steps are, beside a copy in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu.h"

namespace zen::bench {

struct Timing {
  std::string what;
  double seconds = 0;  // median, the host's waits included
  double bytes = 0;    // that must be moved: see the headers of cuda/
};

// The first one is a copy of the gradient within the GPU's memory, read and written.
std::vector<Timing> time_steps(Gpu& gpu, uint64_t elements, int repetitions);

}  // namespace zen::bench
