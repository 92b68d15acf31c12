// Marks the code of a *_avx2.cpp file that may use AVX2, for compilers told nothing about the
// processor. What such a file includes for itself must stay outside: an inline function compiled
// for AVX2 could be the copy that the linker keeps for everybody. Only templates over the word
// kernels (words_*.h, *_loop.h) belong inside.
#pragma once

// clang-format off
#if defined(__clang__)
#define ZEN_BEGIN_AVX2 \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,bmi,bmi2,popcnt,f16c\"))), apply_to = function)")
#define ZEN_END_AVX2 _Pragma("clang attribute pop")
#else
#define ZEN_BEGIN_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,bmi,bmi2,popcnt,f16c\")")
#define ZEN_END_AVX2 _Pragma("GCC pop_options")
#endif
