// Reading and checking one header on the device: csrc/core's read_header(), check_identity(),
// check_counts() and what the encodings demand of their sizes, as one yes or no.
#pragma once

#include "cuda/open.h"
#include "cuda/packing_tables.h"
#include "cuda/tile.cuh"
#include "cuda/words_kinds.h"

namespace zen::cuda {

// A field of a header. REQUIRES: aligned to its size, as all are.
template <class T>
__device__ T field(const std::byte* message, unsigned offset) {
  return *reinterpret_cast<const T*>(message + offset);
}

__device__ inline bool is_expected(const OpenJob& job) {
  const std::byte* in = job.message;
  return field<uint16_t>(in, 0) == 0x535a && field<uint8_t>(in, 2) == kVersion &&
         field<uint8_t>(in, 4) == static_cast<uint8_t>(job.dtype) &&
         field<uint8_t>(in, 6) == job.expected.phase &&
         field<uint8_t>(in, 7) == job.expected.chunk &&
         field<uint32_t>(in, 8) == job.expected.sequence &&
         field<uint32_t>(in, 12) == job.expected.layout &&
         field<uint16_t>(in, 16) == static_cast<uint16_t>(job.map.owner) &&
         field<uint16_t>(in, 18) == job.expected.source;
}

// Packed values take fewer bytes than they have, and there is room for them as they were.
__device__ inline bool value_bytes_fit(const OpenJob& job, const Opened& opened) {
  const uint64_t raw = opened.count * size_of(job.dtype);
  if (opened.value_bytes > job.bytes - kHeaderBytes) return false;
  if (!opened.packed) return opened.value_bytes == raw;
  return opened.value_bytes < raw && raw <= job.unpacked_bytes &&
         ChunkCounts{opened.count}.chunks() * packing::kEntryBytes <= opened.value_bytes;
}

// Sizes within the message and counts within the shard. Written so that nothing can overflow.
__device__ inline bool sizes_fit(const OpenJob& job, const Opened& opened, uint64_t index_bytes) {
  const uint64_t value_bytes = opened.value_bytes;
  if (opened.present > job.map.slots || opened.count > job.map.elements) return false;
  if (!value_bytes_fit(job, opened)) return false;
  if (index_bytes == 0) return true;
  const uint64_t offset = (kHeaderBytes + value_bytes + 7) / 8 * 8;
  if (index_bytes % 8 != 0 || offset > job.bytes || index_bytes > job.bytes - offset) return false;
  for (uint64_t at = kHeaderBytes + value_bytes; at < offset; ++at)
    if (job.message[at] != std::byte{0}) return false;
  return true;
}

__device__ inline bool padding_is_clear(const uint64_t* words, uint64_t bits) {
  return bits % 64 == 0 || (words[bits / 64] & ~low_bits(bits % 64)) == 0;
}

__device__ inline bool list_padding_is_clear(const EliasFano& list, const uint64_t* words) {
  return padding_is_clear(words, list.low_bits()) &&
         padding_is_clear(words + list.low_words(), list.high_bits());
}

__device__ inline bool words_index_fits(const OpenJob& job, Opened& opened) {
  const WordsKinds kinds = words_kinds(opened.flags);
  if (!kinds.known()) return false;
  opened.list = EliasFano(opened.present, job.map.slots);
  opened.presence_words = kinds.presence_words(opened.list, job.map.slots);
  if (kinds.presence == WordsKinds::kAllPresent && opened.present != job.map.slots) return false;
  uint64_t behind = kinds.full == WordsKinds::kNoFlags ? opened.present : 0;
  if (kinds.full == WordsKinds::kFlags) behind = opened.flag_words = words_for_bits(opened.present);
  const uint64_t fixed = opened.presence_words + behind;
  if (kinds.full == WordsKinds::kFlags ? opened.index_words < fixed : opened.index_words != fixed)
    return false;
  if (kinds.presence == WordsKinds::kBitmap && !padding_is_clear(opened.index, job.map.slots))
    return false;
  if (kinds.presence == WordsKinds::kList && !list_padding_is_clear(opened.list, opened.index))
    return false;
  return kinds.full != WordsKinds::kFlags ||
         padding_is_clear(opened.index + opened.presence_words, opened.present);
}

__device__ inline bool coo_index_fits(const OpenJob& job, const Opened& opened) {
  if (job.map.elements > uint64_t{1} << 32) return opened.index_words == opened.count;
  return opened.index_words == (opened.count + 1) / 2 &&
         (opened.count % 2 == 0 || opened.index[opened.index_words - 1] >> 32 == 0);
}

__device__ inline bool blocks_index_fits(const OpenJob& job, const Opened& opened) {
  const uint64_t blocks = (job.map.slots + 3) / 4;
  return opened.index_words == words_for_bits(blocks) && padding_is_clear(opened.index, blocks);
}

__device__ inline bool index_fits(const OpenJob& job, Opened& opened) {
  if (opened.encoding != Encoding::words && opened.flags != 0) return false;
  switch (opened.encoding) {
    case Encoding::dense:
      return opened.index_words == 0 && opened.present == job.map.slots &&
             opened.count == job.map.elements;
    case Encoding::words:
      return words_index_fits(job, opened);
    case Encoding::positions:
      opened.list = EliasFano(opened.count, job.map.elements);
      return opened.index_words == opened.list.words() &&
             list_padding_is_clear(opened.list, opened.index);
    case Encoding::bitmap:
      return opened.index_words == job.map.slots;
    case Encoding::coo:
      return coo_index_fits(job, opened);
    case Encoding::blocks:
      return blocks_index_fits(job, opened);
    default:
      return false;
  }
}

// Fills `opened` and returns whether the message can be one for this job.
__device__ inline bool read_header_of(const OpenJob& job, Opened& opened) {
  if (job.bytes < kHeaderBytes || !is_expected(job)) return false;
  const std::byte* in = job.message;
  const auto encoding = field<uint8_t>(in, 3);
  if (encoding > static_cast<uint8_t>(Encoding::blocks)) return false;
  opened.encoding = static_cast<Encoding>(encoding);
  opened.flags = field<uint8_t>(in, 5);
  opened.present = field<uint32_t>(in, 20);
  opened.count = field<uint64_t>(in, 24);
  opened.packed = (opened.flags & 0x80) != 0;
  opened.flags &= 0x7f;
  opened.value_bytes = field<uint64_t>(in, 32);
  const uint64_t value_bytes = opened.value_bytes, index_bytes = field<uint64_t>(in, 40);
  if (!sizes_fit(job, opened, index_bytes)) return false;
  opened.index_words = index_bytes / 8;
  opened.index = reinterpret_cast<const uint64_t*>(in + (kHeaderBytes + value_bytes + 7) / 8 * 8);
  return index_fits(job, opened);
}

}  // namespace zen::cuda
