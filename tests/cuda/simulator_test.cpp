// Tests of the tester: what the simulator promises to catch, it catches, and what is right passes.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "faulty_kernels.h"
#include "simulator/fault.h"

namespace zen::faulty {
namespace {

using simulator::Fault;
using simulator::Machine;

constexpr uint64_t kSchedules = 100;

// A machine with two streams.
class Gpu {
 public:
  explicit Gpu(uint64_t seed) : machine(seed), use_(machine) {
    cudaStreamCreateWithFlags(&stream, 0);
    cudaStreamCreateWithFlags(&other, 0);
  }
  void wait() { cudaStreamSynchronize(stream); }
  template <class Kernel, class... Arguments>
  void launch(Kernel kernel, unsigned blocks, Arguments... arguments) {
    cuda::launch(kernel, dim3(blocks), dim3(kThreads), kThreads * sizeof(int), stream,
                 arguments...);
  }

  Machine machine;

 private:
  simulator::Use use_;

 public:
  cudaStream_t stream = nullptr, other = nullptr;
};

template <class Kernel>
int sum_with(Kernel kernel, uint64_t seed) {
  Gpu gpu(seed);
  std::vector<int> values(kThreads);
  std::iota(values.begin(), values.end(), 1);
  int total = 0;
  gpu.launch(kernel, 1, values.data(), &total);
  gpu.wait();
  return total;
}

TEST(Simulator, missing_barrier_gives_wrong_sums_and_a_seed_repeats_them) {
  constexpr int kRight = kThreads * (kThreads + 1) / 2;
  int wrong = 0;
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    EXPECT_EQ(sum_with(block_sum<true>, seed), kRight) << "seed " << seed;
    const int racy = sum_with(block_sum<false>, seed);
    wrong += racy != kRight;
    EXPECT_EQ(sum_with(block_sum<false>, seed), racy) << "seed " << seed;
  }
  EXPECT_GT(wrong, static_cast<int>(kSchedules) / 2);
}

// The message of the Fault that `kernel` meets.
template <class Kernel>
std::string fault_of(Kernel kernel, uint64_t seed) {
  Gpu gpu(seed);
  std::vector<int> out(kThreads);
  gpu.launch(kernel, 1, out.data());
  try {
    gpu.wait();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "no fault";
}

TEST(Simulator, barriers_and_masks_that_not_everybody_reaches_are_faults) {
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    EXPECT_NE(fault_of(divergent_barrier, seed).find("divergent barrier"), std::string::npos);
    EXPECT_NE(fault_of(barrier_after_return, seed).find("divergent barrier"), std::string::npos);
    EXPECT_NE(fault_of(disagreeing_masks, seed).find("lanes disagree"), std::string::npos);
  }
  const std::string fault = fault_of(divergent_barrier, 1);
  EXPECT_NE(fault.find("faulty_kernels.h:"), std::string::npos) << fault;
  EXPECT_NE(fault.find("block 0, thread "), std::string::npos) << fault;
}

// Two streams, of which the second should wait for the first. Returns the largest result.
int chained(uint64_t seed, bool waits) {
  Gpu gpu(seed);
  std::vector<int> first(kThreads), second(kThreads), third(kThreads);
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cuda::launch(add_one, dim3(1), dim3(kThreads), 0, gpu.other, first.data(), second.data(),
               kThreads);
  cudaEventRecord(event, gpu.other);
  if (waits) cudaStreamWaitEvent(gpu.stream, event);
  gpu.launch(add_one, 1, second.data(), third.data(), kThreads);
  gpu.wait();
  cudaEventDestroy(event);
  return third[0];
}

TEST(Simulator, missing_wait_between_streams_shows) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    EXPECT_EQ(chained(seed, true), 2) << "seed " << seed;
    wrong += chained(seed, false) != 2;
  }
  EXPECT_GT(wrong, static_cast<int>(kSchedules) / 4);
}

TEST(Simulator, nothing_runs_before_somebody_waits) {
  Gpu gpu(3);
  std::vector<int> in(kThreads, 1), out(kThreads);
  gpu.launch(add_one, 1, in.data(), out.data(), kThreads);
  int host = 0;
  cudaMemcpyAsync(&host, out.data(), sizeof host, cudaMemcpyDeviceToHost, gpu.stream);
  EXPECT_EQ(host, 0);
  gpu.wait();
  EXPECT_EQ(host, 2);
  EXPECT_EQ(gpu.machine.counters.launches, 1u);
  EXPECT_EQ(gpu.machine.counters.copies, 1u);
  EXPECT_EQ(gpu.machine.counters.synchronisations, 1u);
}

TEST(Simulator, waiting_for_an_event_behind_itself_is_a_fault) {
  Gpu gpu(0);
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  event->recorded = 1;  // as if recorded on a stream that has been lost
  cudaStreamWaitEvent(gpu.stream, event);
  EXPECT_THROW(gpu.wait(), Fault);
  cudaEventDestroy(event);
}

// Device memory is for kernels and copies: a host that reads it ends its program, unless it says
// so.
TEST(SimulatorDeathTest, host_reads_of_device_memory_are_caught) {
  Gpu gpu(0);
  void* memory = nullptr;
  cudaMallocAsync(&memory, 100, gpu.stream);
  const volatile auto* bytes = static_cast<const volatile unsigned char*>(memory);
  EXPECT_DEATH(static_cast<void>(bytes[3]), "host touches the memory of a simulated GPU");
  gpu.wait();
  EXPECT_DEATH(static_cast<void>(bytes[3]), "host touches the memory of a simulated GPU");
  const simulator::DeviceMemory::Access access(gpu.machine.memory());
  EXPECT_EQ(bytes[3], 0xcd);
}

// What is freed is handed out again, with rubbish in it.
TEST(Simulator, freed_memory_is_reused_and_forgotten) {
  Gpu gpu(0);
  void *first = nullptr, *second = nullptr;
  cudaMallocAsync(&first, 100, gpu.stream);
  cudaMemsetAsync(first, 1, 100, gpu.stream);
  cudaFreeAsync(first, gpu.stream);
  gpu.wait();
  cudaMallocAsync(&second, 90, gpu.stream);
  EXPECT_EQ(second, first);
  const simulator::DeviceMemory::Access access(gpu.machine.memory());
  EXPECT_EQ(static_cast<unsigned char*>(second)[0], 0xcd);
}

// Every warp operation that kernels may use, against what CUDA says it returns.
__global__ void warp_operations(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const uint64_t wide = uint64_t{lane} << 40 | threadIdx.x;
  const unsigned odd = __ballot_sync(~0u, lane % 2 == 1);
  const uint64_t up = __shfl_up_sync(~0u, wide, 3), down = __shfl_down_sync(~0u, wide, 5);
  const uint64_t other = __shfl_xor_sync(~0u, wide, 9), from = __shfl_sync(~0u, wide, 11);
  const bool any = __any_sync(~0u, lane == 4), all = __all_sync(~0u, lane < 31);
  __syncwarp();
  unsigned half = 0;
  if (lane < 16) half = __ballot_sync(0xffffu, lane < 2);
  out[threadIdx.x] = odd == 0xaaaaaaaau && up >> 40 == (lane < 3 ? lane : lane - 3) &&
                     down >> 40 == (lane > 26 ? lane : lane + 5) && other >> 40 == (lane ^ 9) &&
                     from == (uint64_t{11} << 40 | (threadIdx.x - lane + 11)) && any && !all &&
                     half == (lane < 16 ? 3u : 0u) && __popc(odd) == 16 && __ffs(8) == 4 &&
                     __clz(1) == 31 && __popcll(wide) == __popc(lane) + __popc(threadIdx.x) &&
                     __ffsll(int64_t{1} << 40) == 41 && __clzll(1) == 63;
}

__global__ void atomic_operations(unsigned* out, unsigned long long* wide) {
  atomicAdd(&out[0], 1u);
  atomicOr(&wide[0], 1ull << threadIdx.x % 64);
  atomicMax(&out[1], threadIdx.x);
  atomicMin(&out[2], threadIdx.x);
  if (atomicCAS(&out[3], 0u, threadIdx.x + 1) == 0) atomicAdd(&out[4], 1u);
}

TEST(Simulator, warp_operations_and_atomics_mean_what_cuda_says) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Gpu gpu(seed);
    std::vector<unsigned> warps(kThreads), counts = {0, 0, 1000, 0, 0};
    std::vector<unsigned long long> wide(1);
    gpu.launch(warp_operations, 1, warps.data());
    gpu.launch(atomic_operations, 3, counts.data(), wide.data());
    gpu.wait();
    EXPECT_EQ(warps, std::vector<unsigned>(kThreads, 1));
    EXPECT_EQ(counts[0], 3u * kThreads);
    EXPECT_EQ(counts[1], kThreads - 1u);
    EXPECT_EQ(counts[2], 0u);
    EXPECT_EQ(counts[4], 1u);
    EXPECT_EQ(wide[0], ~0ull);
  }
}

// The first thread to arrive, over many seeds: orders do differ.
__global__ void first_thread(unsigned* first) {
  atomicCAS(first, ~0u, threadIdx.x);
}

TEST(Simulator, seeds_differ) {
  std::set<unsigned> seen;
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    Gpu gpu(seed);
    unsigned first = ~0u;
    gpu.launch(first_thread, 1, &first);
    gpu.wait();
    seen.insert(first);
  }
  EXPECT_GT(seen.size(), 20u);
}

#ifdef ZEN_FAULT_PROGRAM_ASAN

struct Ended {
  int status;
  std::string output;
};

Ended run(const std::string& command) {
  Ended ended;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (size_t read = fread(buffer.data(), 1, buffer.size(), pipe))
    ended.output.append(buffer.data(), read);
  ended.status = pclose(pipe);
  return ended;
}

TEST(SimulatorSanitized, reads_behind_shared_memory_are_reported) {
  for (const char* kernel : {"fixed_overrun", "dynamic_overrun"}) {
    const Ended ended = run(std::string(ZEN_FAULT_PROGRAM_ASAN) + " " + kernel);
    EXPECT_NE(ended.status, 0);
    EXPECT_NE(ended.output.find("heap-buffer-overflow"), std::string::npos) << ended.output;
    EXPECT_NE(ended.output.find("faulty_kernels.h"), std::string::npos) << ended.output;
  }
  const Ended right = run(ZEN_FAULT_PROGRAM_ASAN " sum");
  EXPECT_EQ(right.status, 0) << right.output;
}

TEST(SimulatorSanitized, races_within_and_between_blocks_are_reported) {
  for (const char* kernel : {"racy_sum", "racy_count"}) {
    const Ended ended = run(std::string(ZEN_FAULT_PROGRAM_TSAN) + " " + kernel);
    EXPECT_NE(ended.status, 0);
    EXPECT_NE(ended.output.find("data race"), std::string::npos) << ended.output;
    EXPECT_NE(ended.output.find("faulty_kernels.h"), std::string::npos) << ended.output;
  }
  for (const char* kernel : {"sum", "count"}) {
    const Ended right = run(std::string(ZEN_FAULT_PROGRAM_TSAN) + " " + kernel);
    EXPECT_EQ(right.status, 0) << right.output;
  }
}

#endif

}  // namespace
}  // namespace zen::faulty
