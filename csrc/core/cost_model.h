// What synchronising one bucket will cost: the bytes that every rank sends and receives, the work
// that it does and the time of both, for any scheme, from what the ranks' gradients look like.
//
// Equations (1) and (2) of the ZEN paper (section 2.3) are the special case of coordinate lists,
// equal densities, no headers, no latency and no work: cost_model_test.cpp holds both together.
//
// Only the four operations and comparisons are used: from the same numbers all ranks compute the
// same bits.
#pragma once

#include <vector>

#include "core/codec.h"
#include "core/dtype.h"
#include "core/placement.h"
#include "core/sparsity.h"

namespace zen {

// How the messages of a scheme travel: docs/schemes.md.
enum class Travel : uint8_t {
  ring,            // the backend's dense all-reduce
  everybody,       // each rank's message to all others, who add all of them
  doubling,        // recursive doubling of the whole bucket
  push_pull,       // to owners, whose sums go to all others point to point
  push_broadcast,  // the sums go along binomial trees
  push_scatter,    // the sums go in pieces
};

// What predict() must know of a scheme.
struct Shape {
  Travel travel = Travel::ring;
  PlacementKind placement = PlacementKind::whole;
  Choice push = Choice::dense, pull = Choice::dense;  // one and the same but for push and pull
};

// How the scheme is used on this bucket.
struct Usage {
  DType dtype = DType::f32;  // of the gradient
  DType wire = DType::f32;   // of the values in messages
  int chunks = 1;
  bool pack_values = false;
};

// What the processor does on one rank, in values.
struct Work {
  double scanned = 0;  // elements looked at by selecting
  double listed = 0;   // values written to messages by selecting
  double merged = 0;   // values added up
  double written = 0;  // values written to the gradient
  double packed = 0, unpacked = 0;
};

struct Prediction {
  std::vector<double> bytes_out, bytes_in;  // by rank
  int rounds = 0;                           // of messages that wait for one another
  int messages = 0;                         // that a rank sends
  Work work;                                // of the rank that has most of each

  double busiest_bytes() const;  // the most that a rank sends or receives
};

Prediction predict(const Shape& shape, const Usage& usage, const Sparsity& sparsity);

// Seconds for one unit of everything. A Rates is what one job measures of itself.
struct Rates {
  double round = 150e-6;    // latency of one round
  double message = 150e-6;  // and of each message of it that a rank sends
  double byte = 8e-9;       // of the busiest rank: 1 Gbit/s
  double ring_byte = 8e-9;  // of the backend's all-reduce
  double scanned = 0.3e-9;
  double listed = 1e-9;
  double merged = 1.5e-9;
  double written = 1e-9;
  double packed = 0.8e-9;
  double unpacked = 0.8e-9;
};

struct Seconds {
  double latency = 0, wire = 0, work = 0;
  double total = 0;
};

// Chunks overlap work and wire: what is shorter shows once for each chunk.
Seconds seconds_of(const Prediction& prediction, const Rates& rates, const Shape& shape,
                   int chunks);

}  // namespace zen
