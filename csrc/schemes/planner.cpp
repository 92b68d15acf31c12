#include "schemes/planner.h"

#include "core/error.h"

namespace zen {

namespace {

// Chunks pay when a message spends some 20 ms on the wire, and cost time when the processor is the
// limit. Neither the link nor the density is known here; at 10% density and 1 Gbit/s a gradient of
// this size crosses that line.
constexpr uint64_t kChunkedBytes = 8 << 20;

// More sizes than the buckets of a large model have; calls with ever new sizes must not fill the
// memory.
constexpr size_t kMaxKept = 64;

int checked_chunks(int chunks) {
  if (chunks < 0 || chunks > kMaxChunks)
    throw InvalidArgument("chunks is " + std::to_string(chunks) + ": choose 1 to " +
                          std::to_string(kMaxChunks) + ", or none for an automatic choice");
  return chunks;
}

int owners_of(const Scheme& scheme, int ranks) {
  return scheme.placement == PlacementKind::whole ? 1 : ranks;
}

}  // namespace

Planner::Planner(int chunks, uint32_t seed, int ranks, const Traits& traits,
                 std::optional<DType> wire_dtype)
    : chunks_(checked_chunks(chunks)),
      seed_(seed),
      ranks_(ranks),
      max_chunks_(traits.max_chunks),
      wire_dtype_(wire_dtype) {}

Plan Planner::plan(const Scheme& scheme, DType dtype, uint64_t numel, float divisor) {
  Plan plan;
  plan.scheme = &scheme;
  plan.chunks = chunks(numel * size_of(dtype));
  if (dtype == DType::f32 && scheme.narrows_values) plan.wire_dtype = wire_dtype_;
  if (scheme.has_placement) plan.placement = placement(scheme, numel);
  plan.fingerprint = layout_fingerprint(scheme.name, dtype, numel, ranks_, seed_, plan.chunks,
                                        divisor, plan.wire_dtype);
  return plan;
}

// Words are placed by arithmetic; only lists of elements are worth keeping.
std::shared_ptr<const Placement> Planner::placement(const Scheme& scheme, uint64_t numel) {
  const auto make = [&] {
    return Placement::make(scheme.placement, numel, owners_of(scheme, ranks_), seed_);
  };
  if (scheme.placement != PlacementKind::hashed_elements) return make();
  if (kept_.size() == kMaxKept && kept_.count(numel) == 0) kept_.clear();
  std::shared_ptr<const Placement>& kept = kept_[numel];
  if (!kept) kept = make();
  return kept;
}

int Planner::chunks(uint64_t bytes) const {
  if (chunks_ != 0) return chunks_;
  return bytes < kChunkedBytes ? 1 : max_chunks_;
}

}  // namespace zen
