// A view of bytes that keeps their owner alive. Copying a Buffer shares the bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace zen {

struct Buffer {
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<void> owner;  // null for memory that the caller keeps alive

  // REQUIRES: offset + length <= bytes.
  Buffer slice(size_t offset, size_t length) const { return {data + offset, length, owner}; }
  std::span<const std::byte> span() const { return {data, bytes}; }
};

// Uninitialised memory of exactly `bytes` bytes, aligned to 64.
using Allocate = std::function<Buffer(size_t bytes)>;

}  // namespace zen
