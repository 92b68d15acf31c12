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

Planner::Planner(const std::string& scheme, int chunks, uint32_t seed, int ranks,
                 const Traits& traits, std::optional<DType> wire_dtype)
    : scheme_(find_scheme(scheme)),
      chunks_(checked_chunks(chunks)),
      seed_(seed),
      ranks_(ranks),
      max_chunks_(traits.max_chunks),
      wire_dtype_(wire_dtype) {
  check_options(scheme_, false, wire_dtype);
}

Plan Planner::plan(DType dtype, uint64_t numel, float divisor) {
  Plan plan;
  plan.scheme = &scheme_;
  plan.chunks = chunks(numel * size_of(dtype));
  if (dtype == DType::f32) plan.wire_dtype = wire_dtype_;
  if (scheme_.has_placement) plan.placement = placement(numel);
  plan.fingerprint = layout_fingerprint(scheme_.name, dtype, numel, ranks_, seed_, plan.chunks,
                                        divisor, plan.wire_dtype);
  return plan;
}

// Words are placed by arithmetic; only lists of elements are worth keeping.
std::shared_ptr<const Placement> Planner::placement(uint64_t numel) {
  const auto make = [&] {
    return Placement::make(scheme_.placement, numel, owners_of(scheme_, ranks_), seed_);
  };
  if (scheme_.placement != PlacementKind::hashed_elements) return make();
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
