// The schemes by name, and the fingerprint that tells whether two ranks mean the same exchange.
#include <bit>

#include "core/error.h"
#include "schemes/exchange.h"
#include "schemes/list.h"

namespace zen {
namespace {

// FNV-1a over bytes in a fixed order, so that ranks of different machines agree.
class Fingerprint {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<uint8_t>(c));
    add(text.size());
  }
  void add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<uint8_t>(number >> shift));
  }
  // FNV's low half depends on little of the input's high bits: the finaliser of MurmurHash3 spreads
  // every bit, because only the low half travels with messages.
  uint64_t result() const {
    uint64_t x = hash_;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
  }

 private:
  void add_byte(uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3u; }

  uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace

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
                                          omnireduce(),
                                          sparse_ps(),
                                          sparse_ps_broadcast(),
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
