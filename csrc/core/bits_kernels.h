// What bits.cpp asks of an instruction set.
#pragma once

#include <cstdint>

namespace zen {

uint64_t count_ones_scalar(const uint64_t* words, uint64_t count);
uint64_t count_ones_avx2(const uint64_t* words, uint64_t count);  // REQUIRES: supported(Isa::avx2)

}  // namespace zen
