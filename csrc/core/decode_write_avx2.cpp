// The AVX2 kernels of decode_write.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/decode_write_kernels.h"

#include "core/bits.h"
#include "core/dtype.h"
#include "core/lane_tables.h"
#include "core/placement.h"
#include "core/words_scalar.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "core/avx2_target.h"

ZEN_BEGIN_AVX2
#include "core/decode_write_loop.h"
#include "core/words_avx2.h"

namespace zen {

WriteKernels write_kernels_avx2(DType dtype) {
  return with_type(dtype, []<class T>(T) { return write_kernels<Avx2Words, T>(); });
}

}  // namespace zen
ZEN_END_AVX2

#else

namespace zen {

WriteKernels write_kernels_avx2(DType dtype) {
  return write_kernels_scalar(dtype);
}

}  // namespace zen

#endif
