#include "core/buffer_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <thread>
#include <vector>

namespace zen {
namespace {

constexpr size_t kSizes[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 65535, 65536, 65537, 1000003};

TEST(BufferPool, gives_exact_aligned_writable_memory) {
  BufferPool pool;
  for (size_t bytes : kSizes) {
    const Buffer buffer = pool.get(bytes);
    EXPECT_EQ(buffer.bytes, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data) % 64, 0u);
    std::memset(buffer.data, 1, bytes);
  }
}

TEST(BufferPool, wastes_at_most_an_eighth_and_a_page) {
  BufferPool pool;
  for (size_t bytes : kSizes) {
    const Buffer buffer = pool.get(bytes);
    EXPECT_LE(pool.usage().in_use, bytes + bytes / 8 + 4096) << bytes;
  }
}

TEST(BufferPool, reuses_a_block_once_its_last_copy_is_gone) {
  BufferPool pool;
  for (size_t bytes : {size_t{100}, size_t{100000}}) {
    Buffer first = pool.get(bytes);
    Buffer slice = first.slice(10, 20);
    const std::byte* data = first.data;
    first = {};
    EXPECT_NE(pool.get(bytes).data, data) << "a slice still holds the block";
    slice = {};
    EXPECT_EQ(pool.get(bytes).data, data);
  }
}

TEST(BufferPool, buffers_outlive_the_pool) {
  std::optional<BufferPool> pool(std::in_place);
  const Allocate allocate = pool->allocator();
  Buffer buffer = pool->get(100000);
  pool.reset();
  std::memset(buffer.data, 1, buffer.bytes);
  const Buffer later = allocate(100000);
  std::memset(later.data, 2, later.bytes);
  EXPECT_EQ(buffer.data[99999], std::byte{1});
}

TEST(BufferPool, keeps_idle_memory_below_its_limit) {
  constexpr size_t kLimit = 300000;
  BufferPool pool(kLimit);
  std::vector<Buffer> buffers;
  for (int i = 0; i < 10; ++i) buffers.push_back(pool.get(100000));
  buffers.clear();
  EXPECT_LE(pool.usage().idle, kLimit);
  EXPECT_GT(pool.usage().idle, kLimit / 2);
  EXPECT_EQ(pool.usage().in_use, 0u);
}

TEST(BufferPool, trim_gives_idle_memory_back) {
  BufferPool pool;
  for (size_t bytes : kSizes) pool.get(bytes);
  const Buffer held = pool.get(5000);
  EXPECT_GT(pool.usage().idle, 0u);
  pool.trim();
  EXPECT_EQ(pool.usage().idle, 0u);
  EXPECT_GE(pool.usage().in_use, held.bytes);
}

TEST(BufferPool, gives_back_what_several_rounds_did_not_need) {
  constexpr size_t kLarge = 5 << 20, kUsual = 100000;
  BufferPool pool;
  {
    const Buffer once = pool.get(kLarge), several[] = {pool.get(kUsual), pool.get(kUsual)};
  }
  size_t rounds = 0;
  std::byte* usual = nullptr;
  for (; pool.usage().idle >= kLarge; ++rounds) {
    ASSERT_LE(rounds, BufferPool::kKeptRounds);
    const Buffer again = pool.get(kUsual);
    EXPECT_TRUE(usual == nullptr || again.data == usual) << "what is in use is reused";
    usual = again.data;
    pool.end_round();
  }
  EXPECT_EQ(rounds, BufferPool::kKeptRounds + 1);
  EXPECT_GE(pool.usage().idle, kUsual);
  EXPECT_LT(pool.usage().idle, 2 * kUsual) << "the second usual block was not needed either";

  const Buffer held = pool.get(kLarge);  // is not idle, however long it is held
  for (size_t round = 0; round < 2 * BufferPool::kKeptRounds; ++round) pool.end_round();
  std::memset(held.data, 1, kLarge);
  EXPECT_EQ(pool.usage().idle, 0u);
}

TEST(BufferPool, untouched_pages_are_not_resident) {
  constexpr size_t kBytes = size_t{64} << 20;
  BufferPool pool;
  const Buffer buffer = pool.get(kBytes);
  std::memset(buffer.data, 1, 4096);
  std::vector<unsigned char> resident(kBytes / 4096);
  ASSERT_EQ(mincore(buffer.data, kBytes, resident.data()), 0);
  size_t pages = 0;
  for (unsigned char page : resident) pages += page & 1u;
  EXPECT_LE(pages, kBytes / 4096 / 8);  // one huge page at most, with room to spare
}

TEST(BufferPool, serves_threads_that_pass_buffers_on) {
  BufferPool pool(1 << 20);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&pool, thread] {
      std::vector<Buffer> held(8);
      for (size_t round = 0; round < 2000; ++round) {
        Buffer& buffer = held[round % held.size()];
        buffer = pool.get(1 + round * 97 % 150000);
        std::memset(buffer.data, thread, std::min<size_t>(buffer.bytes, 64));
        ASSERT_EQ(buffer.data[0], static_cast<std::byte>(thread));
      }
    });
  threads.clear();
  EXPECT_EQ(pool.usage().in_use, 0u);
}

}  // namespace
}  // namespace zen
