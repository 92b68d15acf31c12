// Whole schemes with CudaDevice, ranks as threads with a simulated GPU each, against the same
// schemes with CpuDevice: the same bits on every rank.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cluster.h"
#include "gpu.h"
#include "torch/cuda/staged_transport.h"

namespace zen::test {
namespace {

using namespace scheme_test;

struct CudaAnswer {
  std::vector<Bytes> by_rank;
  std::vector<uint64_t> waits;  // of each rank
};

CudaAnswer run_on_gpus(const Traits& traits, const Job& job, uint64_t seed) {
  const int ranks = static_cast<int>(job.inputs.size());
  std::vector<std::unique_ptr<Gpu>> gpus;  // outlive the messages that other ranks hold
  for (int rank = 0; rank < ranks; ++rank)
    gpus.push_back(std::make_unique<Gpu>(seed * 100 + static_cast<uint64_t>(rank)));
  CudaAnswer answer{std::vector<Bytes>(job.inputs.size()),
                    std::vector<uint64_t>(job.inputs.size())};
  {
    ThreadGroup group(ranks, {.traits = traits});
    const auto placement = placement_of(job);
    run_ranks(group, [&](int rank) {
      Gpu& gpu = *gpus[static_cast<size_t>(rank)];
      const simulator::Use use(gpu.machine());
      cuda::CudaDevice device = gpu.device();
      uint64_t sends = 0;  // of which each waits once, because the host sends
      StagedTransport transport(
          group.transport(rank),
          {gpu.stream(), cuda::stream_memory(gpu.stream()), cuda::pinned_memory(), [&] {
             ++sends;
             gpu.finish();
           }});
      StrictObserver observer;
      Bytes bytes = pack(job.inputs[static_cast<size_t>(rank)], job.dtype);
      const Buffer gradient = gpu.upload(std::as_bytes(std::span(bytes)));
      const auto running = make_exchange(job, placement, 3, device, transport, observer,
                                         {gradient, job.dtype, job.inputs[0].size()});
      running->prepare();
      running->post();
      running->finish();
      answer.waits[static_cast<size_t>(rank)] = gpu.machine().counters.synchronisations;
      const Buffer result = gpu.download(gradient);
      std::memcpy(bytes.data(), result.data, result.bytes);
      answer.by_rank[static_cast<size_t>(rank)] = bytes;
    }).rethrow();
  }
  return answer;
}

class CudaSchemeTest : public testing::TestWithParam<std::string> {};

TEST_P(CudaSchemeTest, answer_is_that_of_the_cpu_to_the_bit) {
  constexpr size_t kSizes[] = {1000, 65, 4097, 1};
  constexpr DType kDTypes[] = {DType::bf16, DType::f32, DType::f16};
  size_t turn = 0;
  for (const int ranks : {1, 2, 3, 4, 5})
    for (const auto pattern : {scheme_test::Pattern::popular_rows, scheme_test::Pattern::scattered,
                               scheme_test::Pattern::cancelling}) {
      const Traits traits = turn % 2 == 0 ? kNcclTraits : kGlooTraits;
      const size_t numel = kSizes[turn % std::size(kSizes)];
      const DType dtype = kDTypes[turn % std::size(kDTypes)];
      const Job job{.scheme = GetParam(),
                    .inputs = make_inputs(pattern, ranks, numel, dtype, turn),
                    .dtype = dtype,
                    .divisor = static_cast<float>(ranks),
                    .chunks = turn % 3 == 0 ? 2 : 1};
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + scheme_test::name_of(pattern) + ", " +
                   std::to_string(numel) + " elements");
      ThreadGroup group(ranks, {.traits = traits});
      const Answer expected = run_job(group, job);
      const CudaAnswer found = run_on_gpus(traits, job, turn);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(found.by_rank[rank], expected.by_rank[rank]) << "rank " << rank;
      ++turn;
    }
}

TEST(CudaSchemeNarrow, float32_gradients_travel_as_bfloat16) {
  size_t turn = 0;
  for (const Scheme& scheme : schemes()) {
    if (!scheme.narrows_values) continue;
    for (const int ranks : {1, 3}) {
      const Job job{
          .scheme = std::string(scheme.name),
          .inputs = make_inputs(scheme_test::Pattern::scattered, ranks, 1021, DType::f32, turn),
          .divisor = 3,
          .wire_dtype = DType::bf16};
      SCOPED_TRACE(job.scheme + ", " + std::to_string(ranks) + " ranks");
      ThreadGroup group(ranks, {.traits = kGlooTraits});
      EXPECT_EQ(run_on_gpus(kGlooTraits, job, turn++).by_rank, run_job(group, job).by_rank);
    }
  }
  EXPECT_GT(turn, 0u);
}

INSTANTIATE_TEST_SUITE_P(Schemes, CudaSchemeTest,
                         testing::Values("balanced_parallelism", "hierarchical", "agsparse",
                                         "sparcml", "sparcml_coo", "omnireduce", "sparse_ps",
                                         "sparse_ps_broadcast", "sparse_ps_scatter_allgather",
                                         "allreduce", "zen_paper", "zen_paper_coo_pull"));

// One wait in each phase of each chunk: select with encode, merge, decode_write.
TEST(CudaSchemeWaits, one_in_each_phase) {
  for (const int chunks : {1, 2}) {
    const Job job{.scheme = "balanced_parallelism",
                  .inputs = make_inputs(scheme_test::Pattern::scattered, 3, 4097, DType::f32, 1),
                  .chunks = chunks};
    for (const uint64_t waits : run_on_gpus(kNcclTraits, job, 1).waits)
      EXPECT_EQ(waits, 3u * static_cast<uint64_t>(chunks));
  }
}

}  // namespace
}  // namespace zen::test
