// One bucket in flight. A scheme is one file that implements Exchange against Device and Transport;
// it uses no threads, no clock and no torch, so the same text runs over threads, gloo, NCCL and a
// simulator.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cost_model.h"
#include "core/device.h"
#include "core/placement.h"
#include "schemes/transport.h"

namespace zen {

enum class Stage : uint8_t { select, encode, push, reduce, pull, decode };

const char* name_of(Stage stage);

constexpr int kStages = 6;
using StageSeconds = std::array<double, kStages>;  // indexed by Stage

// Told when a stage begins and ends, on the thread that runs the exchange. Stages do not nest.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void enter(Stage) {}
  virtual void leave(Stage) {}
};

class StageScope {
 public:
  StageScope(Observer& observer, Stage stage) : observer_(observer), stage_(stage) {
    observer_.enter(stage_);
  }
  ~StageScope() { observer_.leave(stage_); }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  Observer& observer_;
  Stage stage_;
};

// What an exchange needs to know. References outlive the exchange.
struct Context {
  Device& device;
  Transport& transport;
  Observer& observer;
  Gradient gradient;
  std::shared_ptr<const Placement> placement;  // null if the scheme's placement is none
  uint32_t layout = 0;                         // low half of layout_fingerprint()
  uint32_t sequence = 0;                       // of the bucket on this group; the same on all ranks
  float divisor = 1;                           // the sum is divided by it before the one rounding
  int chunks = 1;                              // word ranges to pipeline; at most kMaxChunks
  bool pack_values = false;              // fewer bytes for more work; ranks need not agree on it
  std::optional<DType> wire_dtype = {};  // of the values in messages; none: the gradient's
};

constexpr int kMaxChunks = 16;  // a chunk number has four bits in the narrowest transport's tag

// What happened to one bucket. Counts are zero for schemes that do not look at the elements.
struct Report {
  uint64_t nonzeros = 0;  // selected on this rank
  // Listed in the sums: at least the union over the ranks, because dense messages and whole blocks
  // list zeros, too.
  uint64_t nonzeros_summed = 0;
  double imbalance = 1;  // this rank's largest push over the mean push, in values
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void prepare() = 0;  // local work only: may run while the previous bucket is on the wire
  virtual void post() = 0;     // announces and sends; called strictly in bucket order
  virtual void
  finish() = 0;  // waits; then the gradient holds the result, the same bits on every rank
  virtual Report report() const = 0;
};

struct Scheme {
  std::string_view name;
  bool has_placement;
  PlacementKind placement;      // meaningful if has_placement
  bool packs_values = false;    // whether Context::pack_values has an effect
  bool narrows_values = false;  // whether Context::wire_dtype is honoured
  Travel travel = Travel::ring;
  Choice push = Choice::dense, pull = Choice::dense;  // one and the same but for push and pull
  std::unique_ptr<Exchange> (*make)(const Context&);
};

// What the cost model must know of it.
inline Shape shape_of(const Scheme& scheme) {
  return {scheme.travel, scheme.placement, scheme.push, scheme.pull};
}

// All schemes, in the order of docs/schemes.md.
const std::vector<Scheme>& schemes();

// Throws InvalidArgument listing the known names.
const Scheme& find_scheme(std::string_view name);

// Throws InvalidArgument, naming the schemes that would do, if an option that is set has no effect
// on this scheme, and if `wire_dtype` is not bf16.
void check_options(const Scheme& scheme, bool pack_values, std::optional<DType> wire_dtype);

// Equal on two ranks iff they mean the same bucket, the same way. Its low half travels in tags and
// headers.
uint64_t layout_fingerprint(std::string_view scheme, DType dtype, uint64_t numel, int ranks,
                            uint32_t seed, int chunks, float divisor,
                            std::optional<DType> wire_dtype = {});

}  // namespace zen
