// The schemes by name, and the fingerprint that tells whether two ranks mean the same exchange.
#include <bit>

#include "core/error.h"
#include "schemes/exchange.h"
#include "schemes/fingerprint.h"
#include "schemes/list.h"

namespace zen {
const char* name_of(Stage stage) {
  switch (stage) {
    case Stage::select:
      return "select";
    case Stage::encode:
      return "encode";
    case Stage::push:
      return "push";
    case Stage::reduce:
      return "reduce";
    case Stage::pull:
      return "pull";
    case Stage::decode:
      return "decode";
  }
  return "unknown";
}

const std::vector<Scheme>& schemes() {
  static const std::vector<Scheme> all = {allreduce(),
                                          agsparse(),
                                          sparcml(),
                                          sparcml_coo(),
                                          omnireduce(),
                                          sparse_ps(),
                                          sparse_ps_broadcast(),
                                          sparse_ps_scatter_allgather(),
                                          zen_paper(),
                                          zen_paper_coo_pull(),
                                          balanced_parallelism(),
                                          hierarchical()};
  return all;
}

namespace {

template <class Wanted>
std::string list_names(const Wanted& wanted) {
  std::string names;
  for (const Scheme& scheme : schemes())
    if (wanted(scheme)) names += (names.empty() ? "" : ", ") + std::string(scheme.name);
  return names;
}

template <class Honours>
[[noreturn]] void refuse_option(const char* option, const Scheme& scheme, const Honours& honours) {
  throw InvalidArgument(std::string(option) + " has no effect on scheme '" +
                        std::string(scheme.name) + "': leave it out, or choose one of " +
                        list_names(honours));
}

}  // namespace

const Scheme& find_scheme(std::string_view name) {
  for (const Scheme& scheme : schemes())
    if (scheme.name == name) return scheme;
  throw InvalidArgument("unknown scheme '" + std::string(name) + "': choose one of " +
                        list_names([](const Scheme&) { return true; }));
}

void check_options(const Scheme& scheme, bool pack_values, std::optional<DType> wire_dtype) {
  if (wire_dtype && *wire_dtype != DType::bf16)
    throw InvalidArgument(std::string("wire_dtype is ") + name_of(*wire_dtype) +
                          ": choose bfloat16, or none");
  if (pack_values && !scheme.packs_values)
    refuse_option("pack_values", scheme, [](const Scheme& other) { return other.packs_values; });
  if (wire_dtype && !scheme.narrows_values)
    refuse_option("wire_dtype", scheme, [](const Scheme& other) { return other.narrows_values; });
}

uint64_t layout_fingerprint(std::string_view scheme, DType dtype, uint64_t numel, int ranks,
                            uint32_t seed, int chunks, float divisor,
                            std::optional<DType> wire_dtype) {
  Fingerprint fingerprint;
  fingerprint.add(scheme);
  fingerprint.add(static_cast<uint64_t>(dtype));
  fingerprint.add(numel);
  fingerprint.add(static_cast<uint64_t>(ranks));
  fingerprint.add(seed);
  fingerprint.add(static_cast<uint64_t>(chunks));
  fingerprint.add(std::bit_cast<uint32_t>(divisor));
  if (wire_dtype) fingerprint.add(name_of(*wire_dtype));
  return fingerprint.result();
}

}  // namespace zen
