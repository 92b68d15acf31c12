// The AVX2 kernels of select.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/bits.h"
#include "core/dtype.h"
#include "core/lane_tables.h"
#include "core/placement.h"
#include "core/select_kernels.h"
#include "core/words_scalar.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "core/avx2_target.h"

ZEN_BEGIN_AVX2
#include "core/select_loop.h"
#include "core/words_avx2.h"

namespace zen {

SelectWords select_words_avx2(DType dtype) {
  return with_type(dtype, []<class T>(T) -> SelectWords { return select_words<Avx2Words, T>; });
}

}  // namespace zen
ZEN_END_AVX2

#else

namespace zen {

SelectWords select_words_avx2(DType dtype) {
  return select_words_scalar(dtype);
}

}  // namespace zen

#endif
