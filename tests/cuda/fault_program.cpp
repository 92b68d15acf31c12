// Runs one faulty kernel, for simulator_test.cpp to see that a sanitizer build reports it.
// Usage: fault_program NAME; the right versions end with status 0.
#include <cstdio>
#include <string>
#include <vector>

#include "faulty_kernels.h"

namespace zen::faulty {
namespace {

int run(const std::string& name) {
  simulator::Machine machine(1);
  const simulator::Use use(machine);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, 0);
  std::vector<int> values(kThreads, 1), out(kThreads);
  const auto go = [&](auto kernel, unsigned blocks, auto... arguments) {
    cuda::launch(kernel, dim3(blocks), dim3(kThreads), kThreads * sizeof(int), stream,
                 arguments...);
    cudaStreamSynchronize(stream);
    return 0;
  };
  const int* in = values.data();
  if (name == "sum") return go(block_sum<true>, 1, in, out.data());
  if (name == "racy_sum") return go(block_sum<false>, 1, in, out.data());
  if (name == "count") return go(count_blocks<true>, 8, out.data());
  if (name == "racy_count") return go(count_blocks<false>, 8, out.data());
  if (name == "fixed_overrun") return go(shared_overrun<false>, 1, out.data());
  if (name == "dynamic_overrun") return go(shared_overrun<true>, 1, out.data());
  std::fprintf(stderr, "no kernel '%s'\n", name.c_str());
  return 2;
}

}  // namespace
}  // namespace zen::faulty

int main(int count, char** arguments) {
  return zen::faulty::run(count > 1 ? arguments[1] : "");
}
