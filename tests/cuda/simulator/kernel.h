// What kernel text may use besides C++: the keywords, built-in variables, warp operations and
// atomics of CUDA, for the thread that the simulator is running.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "block.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::zen::simulator::current_block()->thread().index)
#define blockIdx (::zen::simulator::current_block()->block_index)
#define blockDim (::zen::simulator::current_block()->block)
#define gridDim (::zen::simulator::current_block()->grid)

namespace zen::simulator {

template <class T>
uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline unsigned lane() {
  return current_block()->thread().number % kWarpLanes;
}

template <class T>
T shuffle(uint32_t mask, T value, unsigned source, const Site& site) {
  return from_bits<T>(
      current_block()->warp_step(WarpStep::shuffle, mask, bits_of(value), source, site));
}

// Replaces *memory by f(*memory) and returns what was there.
template <class T, class F>
T replace(T* memory, F f) {
  current_block()->perhaps_yield();
  T before = __atomic_load_n(memory, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(memory, &before, f(before), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return before;
}

}  // namespace zen::simulator

#define ZEN_SIMULATOR_SITE const ::zen::simulator::Site& site = ::zen::simulator::Site::current()

inline void __syncthreads(ZEN_SIMULATOR_SITE) {
  zen::simulator::current_block()->barrier(site);
}

inline void __syncwarp(unsigned mask = ~0u, ZEN_SIMULATOR_SITE) {
  zen::simulator::current_block()->warp_step(zen::simulator::WarpStep::sync, mask, 0, 0, site);
}

inline unsigned __ballot_sync(unsigned mask, bool predicate, ZEN_SIMULATOR_SITE) {
  return static_cast<unsigned>(zen::simulator::current_block()->warp_step(
      zen::simulator::WarpStep::ballot, mask, predicate, 0, site));
}

inline bool __any_sync(unsigned mask, bool predicate, ZEN_SIMULATOR_SITE) {
  return __ballot_sync(mask, predicate, site) != 0;
}

inline bool __all_sync(unsigned mask, bool predicate, ZEN_SIMULATOR_SITE) {
  return __ballot_sync(mask, predicate, site) == mask;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, ZEN_SIMULATOR_SITE) {
  return zen::simulator::shuffle(mask, value, static_cast<unsigned>(source) % 32, site);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, ZEN_SIMULATOR_SITE) {
  const unsigned lane = zen::simulator::lane();
  return zen::simulator::shuffle(mask, value, lane < delta ? lane : lane - delta, site);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, ZEN_SIMULATOR_SITE) {
  const unsigned lane = zen::simulator::lane();
  return zen::simulator::shuffle(mask, value, lane + delta > 31 ? lane : lane + delta, site);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int flip, ZEN_SIMULATOR_SITE) {
  return zen::simulator::shuffle(mask, value, zen::simulator::lane() ^ static_cast<unsigned>(flip),
                                 site);
}

inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

template <class T, class U>
T atomicAdd(T* memory, U value) {
  return zen::simulator::replace(memory, [=](T before) { return static_cast<T>(before + value); });
}
template <class T, class U>
T atomicOr(T* memory, U value) {
  return zen::simulator::replace(memory, [=](T before) { return static_cast<T>(before | value); });
}
template <class T, class U>
T atomicAnd(T* memory, U value) {
  return zen::simulator::replace(memory, [=](T before) { return static_cast<T>(before & value); });
}
template <class T, class U>
T atomicMin(T* memory, U value) {
  return zen::simulator::replace(memory, [=](T before) { return before < value ? before : value; });
}
template <class T, class U>
T atomicMax(T* memory, U value) {
  return zen::simulator::replace(memory, [=](T before) { return before > value ? before : value; });
}
template <class T, class U>
T atomicExch(T* memory, U value) {
  return zen::simulator::replace(memory, [=](T) { return static_cast<T>(value); });
}
template <class T, class U, class V>
T atomicCAS(T* memory, U expected, V value) {
  return zen::simulator::replace(memory, [=](T before) {
    return before == static_cast<T>(expected) ? static_cast<T>(value) : before;
  });
}

#undef ZEN_SIMULATOR_SITE
