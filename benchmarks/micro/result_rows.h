// Results of the micro benchmarks as rows of one JSON file, runs/codec.json. Each program appends
// its rows; `make bench` starts with an empty file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zen {

struct ResultRow {
  std::string operation, encoding, pattern, dtype;
  double density = 0;
  int threads = 1;
  double seconds = 0;        // median of the repetitions
  double bytes = 0;          // what the ratio counts: source bytes, or the message where it is one
  double entropy_bytes = 0;  // lower bound of the message; 0 where there is no message
  double ratio_to_bandwidth = 0;
  std::string bandwidth;  // which one the ratio refers to: read or copy
};

// Appends to the list in `path`, or starts one. Throws std::runtime_error if the file cannot be
// written or holds something else.
void append_rows(const std::string& path, const std::vector<ResultRow>& rows);

}  // namespace zen
