#include "cuda/open.h"

#include "cuda/elias_fano.cuh"
#include "cuda/error.h"
#include "cuda/header.cuh"
#include "cuda/verdict.cuh"

namespace zen::cuda {

namespace {

__global__ void __launch_bounds__(kTileSlots) read_headers(const OpenJob* jobs, unsigned count) {
  const unsigned at = blockIdx.x * kTileSlots + threadIdx.x;
  if (at >= count) return;
  const OpenJob& job = jobs[at];
  Opened opened;
  if (!read_header_of(job, opened)) reject(job);
  *job.opened = opened;
}

__device__ bool has_list(const Opened& opened) {
  return opened.encoding == Encoding::positions ||
         (opened.encoding == Encoding::words &&
          words_kinds(opened.flags).presence == WordsKinds::kList);
}

__device__ const uint64_t* flags_of(const Opened& opened) {
  return opened.index + opened.presence_words;
}

// The ones of word `word` of the list's high part, and of the full flags; 0 past their ends.
__device__ uint64_t high_word(const Opened& opened, uint64_t word) {
  return has_list(opened) && word < opened.list.high_words()
             ? opened.index[opened.list.low_words() + word]
             : 0;
}

__device__ uint64_t flag_word(const Opened& opened, uint64_t word) {
  return word < opened.flag_words ? flags_of(opened)[word] : 0;
}

__global__ void __launch_bounds__(kTileSlots) count_bits(const OpenJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const Place place = place_of_block(count);
  const OpenJob& job = jobs[place.job];
  if (place.tile >= OpenJob::bit_tiles(job.map.slots) || !is_readable(job)) return;
  const uint64_t word = place.tile * kTileSlots + threadIdx.x;
  const uint64_t high = block_scan(popcount(high_word(*job.opened, word)), scratch).total;
  const uint64_t flags = block_scan(popcount(flag_word(*job.opened, word)), scratch).total;
  if (threadIdx.x != 0) return;
  job.high_sums[place.tile] = high;
  job.flag_sums[place.tile] = flags;
}

// Notes a number of a list: an element of `positions`, a slot of `words`.
__device__ void note(const OpenJob& job, const Opened& opened, uint64_t number) {
  uint64_t* bits = opened.encoding == Encoding::words ? job.presence : job.table.masks;
  atomic_or(bits + number / 64, uint64_t{1} << number % 64);
}

// Number `index` of the list is at `bit` of the high part; `follows` if the bit before it is set,
// too: then both have the same high part and the low ones must ascend.
__device__ void read_number(const OpenJob& job, const Opened& opened, uint64_t index, uint64_t bit,
                            bool follows) {
  const EliasFano& list = opened.list;
  if (index >= list.count()) return reject(job);
  const uint64_t low = low_part(list, opened.index, index);
  const uint64_t number = (bit - index) << list.low_width() | low;
  if (number >= list.universe()) return reject(job);
  if (follows && low <= low_part(list, opened.index, index - 1)) return reject(job);
  note(job, opened, number);
}

__device__ void read_list(const OpenJob& job, const Opened& opened, uint64_t tile,
                          uint64_t* scratch) {
  const uint64_t word = tile * kTileSlots + threadIdx.x, bits = high_word(opened, word);
  uint64_t index = job.high_sums[tile] + block_scan(popcount(bits), scratch).before;
  const uint64_t carry = word == 0 ? 0 : high_word(opened, word - 1) >> 63;
  const uint64_t follows = bits & (bits << 1 | carry);
  for (uint64_t rest = bits; rest != 0; rest &= rest - 1, ++index) {
    const auto bit = static_cast<unsigned>(__ffsll(static_cast<long long>(rest)) - 1);
    read_number(job, opened, index, word * 64 + bit, (follows >> bit & 1) != 0);
  }
  const uint64_t ones = job.high_sums[OpenJob::bit_tiles(job.map.slots)];
  if (tile == 0 && threadIdx.x == 0 && ones != opened.list.count()) reject(job);
}

template <class Position>
__device__ void read_coo(const OpenJob& job, const Opened& opened, uint64_t tile) {
  const auto* positions = reinterpret_cast<const Position*>(opened.index);
  const uint64_t step = OpenJob::bit_tiles(job.map.slots) * kTileSlots;
  for (uint64_t at = tile * kTileSlots + threadIdx.x; at < opened.count; at += step) {
    const uint64_t position = positions[at];
    if (position >= job.map.elements || (at > 0 && position <= positions[at - 1])) {
      reject(job);
      return;
    }
    note(job, opened, position);
  }
}

__global__ void __launch_bounds__(kTileSlots) read_numbers(const OpenJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  ZEN_SHARED(uint64_t, readable, 1);
  const Place place = place_of_block(count);
  const OpenJob& job = jobs[place.job];
  if (place.tile >= OpenJob::bit_tiles(job.map.slots)) return;
  if (!is_still_readable(job, readable)) return;
  const Opened& opened = *job.opened;
  if (has_list(opened)) return read_list(job, opened, place.tile, scratch);
  if (opened.encoding != Encoding::coo) return;
  if (job.map.elements <= uint64_t{1} << 32)
    read_coo<uint32_t>(job, opened, place.tile);
  else
    read_coo<uint64_t>(job, opened, place.tile);
}

// Presence bits of 64 slots of a `words` message.
__device__ uint64_t presence_word(const OpenJob& job, const Opened& opened, uint64_t word) {
  const WordsKinds kinds = words_kinds(opened.flags);
  if (word * 64 >= job.map.slots) return 0;
  if (kinds.presence == WordsKinds::kBitmap) return opened.index[word];
  if (kinds.presence == WordsKinds::kList) return job.presence[word];
  return low_bits(job.map.slots - word * 64 < 64 ? job.map.slots - word * 64 : 64);
}

__global__ void __launch_bounds__(kTileSlots) sum_presence(const OpenJob* jobs, unsigned count) {
  const Place place = place_of_block(count);
  const OpenJob& job = jobs[place.job];
  if (place.tile >= job.table.tiles() || !is_readable(job)) return;
  const Opened& opened = *job.opened;
  if (opened.encoding != Encoding::words || threadIdx.x != 0) return;
  uint64_t sum = 0;
  for (uint64_t word = 0; word < kTileSlots / 64; ++word)
    sum += popcount(presence_word(job, opened, place.tile * (kTileSlots / 64) + word));
  job.presence_sums[place.tile] = sum;
}

// Ones among the first `bits` full flags; every thread of the block calls it.
__device__ uint64_t flags_before(const OpenJob& job, const Opened& opened, uint64_t bits,
                                 uint64_t* scratch) {
  const uint64_t last = bits / 64, tile = last / kTileSlots;
  const uint64_t word = tile * kTileSlots + threadIdx.x;
  uint64_t flags = word <= last ? flag_word(opened, word) : 0;
  if (word == last) flags &= low_bits(bits % 64);
  return job.flag_sums[tile] + block_scan(popcount(flags), scratch).total;
}

// This thread's mask of a `words` message; 0 for an absent slot. Every thread of the block calls
// it.
__device__ uint64_t mask_of_words(const OpenJob& job, const Opened& opened, uint64_t tile,
                                  uint64_t* scratch) {
  const uint64_t slot = tile * kTileSlots + threadIdx.x;
  const bool present = (presence_word(job, opened, slot / 64) >> slot % 64 & 1) != 0;
  const uint64_t first = job.presence_sums[tile];
  const uint64_t index = first + block_scan(present, scratch).before;
  const WordsKinds kinds = words_kinds(opened.flags);
  const bool possible = present && index < opened.present;
  if (present && !possible) reject(job);
  if (kinds.full == WordsKinds::kAllFull) return possible ? job.map.full_mask(slot) : 0;
  const uint64_t* masks = flags_of(opened) + opened.flag_words;
  if (kinds.full == WordsKinds::kNoFlags) return possible ? masks[index] : 0;
  const bool flagged = possible && (flag_word(opened, index / 64) >> index % 64 & 1) != 0;
  const uint64_t before =
      flags_before(job, opened, first < opened.present ? first : opened.present, scratch) +
      block_scan(flagged, scratch).before;
  if (flagged) return job.map.full_mask(slot);
  if (!possible) return 0;
  const uint64_t listed = opened.index_words - opened.presence_words - opened.flag_words;
  if (index - before >= listed || masks[index - before] == job.map.full_mask(slot)) {
    reject(job);
    return 0;
  }
  return masks[index - before];
}

__device__ uint64_t mask_of_slot(const OpenJob& job, const Opened& opened, uint64_t slot) {
  if (slot >= job.map.slots) return 0;
  switch (opened.encoding) {
    case Encoding::dense:
      return job.map.full_mask(slot);
    case Encoding::bitmap:
      return opened.index[slot];
    case Encoding::blocks:
      return (opened.index[slot / 256] >> slot / 4 % 64 & 1) != 0 ? job.map.full_mask(slot) : 0;
    default:  // positions and coo were noted there
      return job.table.masks[slot];
  }
}

__global__ void __launch_bounds__(kTileSlots) read_masks(const OpenJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  ZEN_SHARED(uint64_t, readable, 1);
  const Place place = place_of_block(count);
  const OpenJob& job = jobs[place.job];
  if (place.tile >= job.table.tiles()) return;
  if (!is_still_readable(job, readable)) return;
  const Opened& opened = *job.opened;
  const uint64_t slot = place.tile * kTileSlots + threadIdx.x;
  const uint64_t mask = opened.encoding == Encoding::words
                            ? mask_of_words(job, opened, place.tile, scratch)
                            : mask_of_slot(job, opened, slot);
  if (slot < job.map.slots && (mask & ~job.map.full_mask(slot)) != 0) reject(job);
  write_tile(job.table, job.map, place.tile, mask, scratch);
}

// What the header claims, against what was found.
__device__ bool totals_agree(const OpenJob& job, const Opened& opened) {
  const uint64_t tiles = job.table.tiles();
  if (job.table.count(kPresent)[tiles] != opened.present ||
      job.table.count(kValues)[tiles] != opened.count)
    return false;
  if (opened.encoding != Encoding::words) return true;
  if (job.presence_sums[tiles] != opened.present) return false;
  if (words_kinds(opened.flags).full != WordsKinds::kFlags) return true;
  const uint64_t listed = opened.index_words - opened.presence_words - opened.flag_words;
  return listed == opened.present - job.flag_sums[OpenJob::bit_tiles(job.map.slots)];
}

__global__ void __launch_bounds__(kTileSlots) write_offsets(const OpenJob* jobs, unsigned count) {
  ZEN_SHARED(uint64_t, scratch, kWarps);
  const Place place = place_of_block(count);
  const OpenJob& job = jobs[place.job];
  const uint64_t tiles = job.table.tiles();
  if (place.tile == 0 && threadIdx.x == 0 && !totals_agree(job, *job.opened)) reject(job);
  if (place.tile >= tiles) return;
  const uint64_t slot = place.tile * kTileSlots + threadIdx.x;
  const uint64_t offset =
      offset_of_thread(job.table, place.tile, mask_of_thread(job.table, place.tile), scratch);
  if (slot < job.table.slots) job.table.offsets[slot] = offset;
}

void launch_jobs(void (*kernel)(const OpenJob*, unsigned), const char* name, const OpenJob* jobs,
                 unsigned count, uint64_t tiles, cudaStream_t stream) {
  if (tiles == 0) return;
  launch(kernel, dim3(static_cast<unsigned>(tiles * count)), dim3(kTileSlots), 0, stream, jobs,
         count);
  check_launch(name);
}

}  // namespace

void open_headers(const OpenJob* jobs, unsigned count, cudaStream_t stream) {
  launch(read_headers, dim3((count + kTileSlots - 1) / kTileSlots), dim3(kTileSlots), 0, stream,
         jobs, count);
  check_launch("read_headers");
}

void open_count_bits(const OpenJob* jobs, unsigned count, uint64_t most_bit_tiles,
                     cudaStream_t stream) {
  launch_jobs(count_bits, "count_bits", jobs, count, most_bit_tiles, stream);
}

void open_numbers(const OpenJob* jobs, unsigned count, uint64_t most_bit_tiles,
                  cudaStream_t stream) {
  launch_jobs(read_numbers, "read_numbers", jobs, count, most_bit_tiles, stream);
}

void open_sum_presence(const OpenJob* jobs, unsigned count, uint64_t most_tiles,
                       cudaStream_t stream) {
  launch_jobs(sum_presence, "sum_presence", jobs, count, most_tiles, stream);
}

void open_masks(const OpenJob* jobs, unsigned count, uint64_t most_tiles, cudaStream_t stream) {
  launch_jobs(read_masks, "read_masks", jobs, count, most_tiles, stream);
}

void open_offsets(const OpenJob* jobs, unsigned count, uint64_t most_tiles, cudaStream_t stream) {
  launch_jobs(write_offsets, "write_offsets", jobs, count, most_tiles > 0 ? most_tiles : 1, stream);
}

}  // namespace zen::cuda
