// Values of opened messages that came packed, as they were: csrc/core's check_packed() and
// unpack_values(), which accept the same bytes.
//
// Expected bytes for nnz values of b bytes packed into P bytes: P read (planes three times, from
// the cache after the first), nnz * b written.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/open.h"
#include "cuda/packing_tables.h"
#include "cuda/portable.h"

namespace zen::cuda {

// Checks the tables of chunks and fills the jobs' body_sums (not yet scanned). Jobs whose values
// are not packed are left alone, here and below. REQUIRES: open_headers() before.
void unpack_measure(const CodeTables* tables, const OpenJob* jobs, unsigned count,
                    uint64_t most_chunks, cudaStream_t stream);

// Fills the jobs' `unpacked`. REQUIRES: body_sums have been scanned.
void unpack_write(const CodeTables* tables, const OpenJob* jobs, unsigned count,
                  uint64_t most_chunks, cudaStream_t stream);

}  // namespace zen::cuda
