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

const Scheme& find_scheme(std::string_view name) {
  std::string known;
  for (const Scheme& scheme : schemes()) {
    if (scheme.name == name) return scheme;
    known += (known.empty() ? "" : ", ") + std::string(scheme.name);
  }
  throw InvalidArgument("unknown scheme '" + std::string(name) + "': choose one of " + known);
}

uint64_t layout_fingerprint(std::string_view scheme, DType dtype, uint64_t numel, int ranks,
                            uint32_t seed, int chunks, float divisor) {
  Fingerprint fingerprint;
  fingerprint.add(scheme);
  fingerprint.add(static_cast<uint64_t>(dtype));
  fingerprint.add(numel);
  fingerprint.add(static_cast<uint64_t>(ranks));
  fingerprint.add(seed);
  fingerprint.add(static_cast<uint64_t>(chunks));
  fingerprint.add(std::bit_cast<uint32_t>(divisor));
  return fingerprint.result();
}

}  // namespace zen
