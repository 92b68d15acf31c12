// What the DGC pass asks of an instruction set: the interface of dgc_select_loop.h.
#pragma once

#include "core/dgc_pass.h"
#include "core/dtype.h"
#include "core/placement.h"
#include "core/select_kernels.h"

namespace zen {

// As SelectWords, for a pass whose memory begins with the gradient.
using DgcSelectWords = void (*)(std::byte* gradient, WordRange range, Deal deal,
                                OwnerStream* streams, DgcPass& pass);

DgcSelectWords dgc_select_words_scalar(DType dtype, const DgcPass& pass);
// REQUIRES: supported(Isa::avx2).
DgcSelectWords dgc_select_words_avx2(DType dtype, const DgcPass& pass);

// The pass's arrays from one element on.
template <class T, class M>
struct DgcArrays {
  T* gradient;
  M* residual;  // null if there is none
  M* momentum;  // null if there is none

  DgcArrays(std::byte* gradient, const DgcPass& pass, uint64_t elem)
      : gradient(reinterpret_cast<T*>(gradient) + elem),
        residual(at(pass.residual, elem)),
        momentum(at(pass.momentum, elem)) {}

 private:
  static M* at(std::byte* memory, uint64_t elem) {
    return memory == nullptr ? nullptr : reinterpret_cast<M*>(memory) + elem;
  }
};

// Calls f(g, m) with values of the types of the gradient and of the pass's memory.
template <class F>
decltype(auto) with_dgc_types(DType dtype, const DgcPass& pass, F&& f) {
  return with_type(dtype, [&]<class T>(T) {
    if (pass.residual == nullptr || pass.memory == DType::f32) return f(T{}, float{});
    return f(T{}, T{});
  });
}

}  // namespace zen
