// Every step of CudaDevice against CpuDevice: the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu.h"

namespace zen::bench {

// What differed, in words, of `cases` exchanges drawn from a seed; nothing if all is well.
std::vector<std::string> check_steps(Gpu& gpu, uint64_t cases);

}  // namespace zen::bench
