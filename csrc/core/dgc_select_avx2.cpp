// The AVX2 kernels of the DGC pass.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/bits.h"
#include "core/dgc_pass.h"
#include "core/dgc_words_scalar.h"
#include "core/dtype.h"
#include "core/lane_tables.h"
#include "core/placement.h"
#include "core/select_kernels.h"
#include "core/words_scalar.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "core/avx2_target.h"
#include "core/dgc_select_kernels.h"

ZEN_BEGIN_AVX2
#include "core/dgc_select_loop.h"
#include "core/dgc_words_avx2.h"

namespace zen {

DgcSelectWords dgc_select_words_avx2(DType dtype, const DgcPass& pass) {
  return dgc_kernel<Avx2Words, DgcAvx2Words>(dtype, pass);
}

}  // namespace zen
ZEN_END_AVX2

#else

#include "core/dgc_select_kernels.h"

namespace zen {

DgcSelectWords dgc_select_words_avx2(DType dtype, const DgcPass& pass) {
  return dgc_select_words_scalar(dtype, pass);
}

}  // namespace zen

#endif
