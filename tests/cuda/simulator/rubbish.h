// Memory that is never zero by luck, aligned as the CUDA runtime's own.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>

namespace zen::simulator {

constexpr std::align_val_t kAlign{256};

inline void* allocate_rubbish(size_t bytes) {
  void* memory = ::operator new(bytes, kAlign);
  std::memset(memory, 0xcd, bytes);
  return memory;
}

inline void free_rubbish(void* memory) {
  ::operator delete(memory, kAlign);
}

}  // namespace zen::simulator
