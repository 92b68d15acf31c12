// Lossless packing of gradient values: fewer bytes for the exponents, sign and mantissa as they
// are.
//
// The values of one block of 64 lie within a few powers of two of the largest, so an exponent is
// replaced by its distance below the block's largest one, in a prefix code of bit planes. Every bit
// pattern survives: NaN payloads, infinities, subnormals and both zeros are exponents like others.
//
// docs/value-packing.md is the specification; value_packing_chunk.h has the constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/cpu_features.h"
#include "core/dtype.h"

namespace zen {

// Room that pack() needs for any values: the raw bytes and 8 bytes per 4096 values (at most 0.1%).
// Decreases with nothing but the count, so it can be allocated before the values are known.
size_t max_packed_bytes(DType dtype, size_t count);

// No values of this count pack into fewer bytes.
size_t min_packed_bytes(DType dtype, size_t count);

// Packs `count` values of `dtype` at `values` into `out` and returns the exact length. Values that
// do not pack stay raw, chunk by chunk, so a result of count * size_of(dtype) bytes or more means
// that the caller does better with the values as they are. REQUIRES: out has room for
// max_packed_bytes(dtype, count) and does not overlap the values.
size_t pack_values(DType dtype, const std::byte* values, size_t count, std::byte* out,
                   Isa isa = preferred_isa());

// Checks that `packed` has exactly the length that its own table and `count` demand: O(count /
// 4096). Throws MalformedMessage.
void check_packed(DType dtype, std::span<const std::byte> packed, size_t count);

// The inverse of pack_values(). Reads only `packed` and writes only count * size_of(dtype) bytes at
// `out`, for any input. Throws MalformedMessage, perhaps after it has written some of them.
void unpack_values(DType dtype, std::span<const std::byte> packed, size_t count, std::byte* out,
                   Isa isa = preferred_isa());

}  // namespace zen
