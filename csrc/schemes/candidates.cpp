#include "schemes/candidates.h"

namespace zen {

namespace {

// The others lose to one of these whatever the gradient: they send more bytes in as many rounds.
// The two baselines spend less time on an index, which counts where the network is fast.
constexpr std::string_view kSchemes[] = {"balanced_parallelism", "hierarchical", "allreduce",
                                         "agsparse", "sparcml"};

}  // namespace

std::string Choosable::name() const {
  return std::string(scheme->name) + (pack_values ? ", packed" : "");
}

std::vector<Choosable> choosable(DType dtype, const Wishes& wishes) {
  std::vector<Choosable> result;
  const bool narrows = dtype == DType::f32 && wishes.wire_dtype.has_value();
  for (const std::string_view name : kSchemes) {
    const Scheme& scheme = find_scheme(name);
    if (!scheme.has_placement) {
      if (!wishes.compressed) result.push_back({&scheme, false});
      continue;
    }
    if (narrows && !scheme.narrows_values) continue;
    if (!wishes.pack_values.value_or(false)) result.push_back({&scheme, false});
    if (scheme.packs_values && wishes.pack_values.value_or(true)) result.push_back({&scheme, true});
  }
  return result;
}

}  // namespace zen
