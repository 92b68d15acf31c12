// The inner loop of the DGC pass, written once for all instruction sets. Only templates over the
// word kernels may stand here (see avx2_target.h).
#pragma once

#include <algorithm>

#include "core/bits.h"
#include "core/dgc_select_kernels.h"
#include "core/select_loop.h"

namespace zen {

template <class Words, class DgcWords, class T, class M>
ZEN_INLINE void dgc_select_word(T* gradient, M* residual, M* momentum, uint64_t count,
                                OwnerStream& stream, DgcPass& pass) {
  alignas(64) T sent[kWordElems];
  const uint64_t mask = DgcWords::take(gradient, residual, momentum, count, pass, sent);
  append_word<Words>(sent, mask, count, stream);
}

template <class Words, class DgcWords, class T, class M, bool kResidual, bool kMomentum>
void dgc_select_words(std::byte* gradient, WordRange range, Deal deal, OwnerStream* streams,
                      DgcPass& pass) {
  const DgcArrays<T, M> arrays(gradient, pass, range.begin * kWordElems);
  const auto n = static_cast<uint64_t>(deal.owners);
  uint64_t elem = 0;
  for (uint64_t word = range.begin; word < range.end;) {
    const uint64_t block_end = n == 1 ? range.end : std::min(range.end, (word / n + 1) * n);
    for (int owner = deal.owner(word); word < block_end; ++word, elem += kWordElems) {
      prefetch_ahead<Words>(arrays.gradient + elem);
      M *residual = nullptr, *momentum = nullptr;
      if constexpr (kResidual) {
        residual = arrays.residual + elem;
        prefetch_ahead<Words>(residual);
      }
      if constexpr (kMomentum) {
        momentum = arrays.momentum + elem;
        prefetch_ahead<Words>(momentum);
      }
      dgc_select_word<Words, DgcWords>(arrays.gradient + elem, residual, momentum, kWordElems,
                                       streams[owner], pass);
      if (++owner == deal.owners) owner = 0;
    }
  }
}

template <class Words, class DgcWords>
DgcSelectWords dgc_kernel(DType dtype, const DgcPass& pass) {
  return with_dgc_types(dtype, pass, [&]<class T, class M>(T, M) -> DgcSelectWords {
    if (pass.residual == nullptr) return dgc_select_words<Words, DgcWords, T, M, false, false>;
    if (pass.momentum == nullptr) return dgc_select_words<Words, DgcWords, T, M, true, false>;
    return dgc_select_words<Words, DgcWords, T, M, true, true>;
  });
}

}  // namespace zen
