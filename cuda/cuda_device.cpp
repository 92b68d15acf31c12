#include "cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/buffer_pool.h"
#include "core/dense_sum.h"
#include "core/error.h"
#include "core/format.h"
#include "core/fragment.h"
#include "core/select.h"
#include "core/select_elements.h"
#include "cuda/decode_write.h"
#include "cuda/dense_sum.h"
#include "cuda/error.h"
#include "cuda/hash_elements.h"
#include "cuda/merge.h"
#include "cuda/scan.h"
#include "cuda/select.h"
#include "cuda/selecting.h"
#include "cuda/selection_tables.h"
#include "cuda/step.h"
#include "cuda/unpack.h"

namespace zen::cuda {

namespace {

HashJob job_of(const HierarchicalHash& hash) {
  HashJob job;
  job.partitions = static_cast<uint32_t>(hash.h0.n());
  job.h0_seed = hash.h0.seed();
  job.hashes = static_cast<int>(hash.H.size());
  if (job.hashes > kMaxHashes) throw InvalidArgument("a GPU has room for 8 hash functions");
  std::ranges::copy(hash.H, job.seeds);
  job.r1 = hash.r1;
  job.r2 = hash.r2;
  return job;
}

void check_alignment(const Buffer& message) {
  if (reinterpret_cast<uintptr_t>(message.data) % 8 != 0)
    throw InvalidArgument("a message on a CUDA device must begin at a multiple of 8 bytes");
}

}  // namespace

// One message to open.
struct CudaDevice::Input {
  Buffer message;
  Identity expected;
  DType dtype;
  Shard shard;
};

struct CudaDevice::Indices {
  Buffer memory;  // of 4 bytes each
  uint64_t count = 0;
};

struct CudaDevice::Opening {
  const OpenJob* jobs = nullptr;  // device memory
  uint64_t tiles = 0;             // of the largest shard
};

CudaDevice::CudaDevice(cudaStream_t stream, Allocate device_memory, Allocate pinned_memory,
                       Wait wait)
    : stream_(stream),
      device_memory_(std::move(device_memory)),
      pinned_memory_(std::move(pinned_memory)),
      wait_(std::move(wait)) {
  if (!wait_)
    wait_ = [stream] { cuda::check(cudaStreamSynchronize(stream), "waiting for the stream"); };
}

CudaDevice::~CudaDevice() {
  if (!held_.empty()) cudaStreamSynchronize(stream_);
}

Buffer CudaDevice::allocate(size_t bytes) {
  return device_memory_(bytes);
}

ShardSelection CudaDevice::room_for(const Shard& shard, DType dtype) {
  ShardSelection selection;
  selection.shard = shard;
  selection.dtype = dtype;
  selection.message = device_memory_(selection_capacity(shard, dtype));
  selection.masks = device_memory_(SlotTable::bytes(shard.slots));
  return selection;
}

ShardMap CudaDevice::map_of(const Shard& shard) {
  const bool elements = shard.placement->kind() == PlacementKind::hashed_elements;
  return ShardMap::of(
      shard,
      elements ? lists_.members(shard, stream_, device_memory_, pinned_memory_, held_) : nullptr);
}

// Rooms for what the owners of a range are to send. The counts go to totals[0, owners * kCounts).
Selecting CudaDevice::rooms(Step& step, const Placement& placement, WordRange range, DType dtype,
                            uint64_t* totals, bool takes) {
  Selecting selecting;
  for (int owner = 0; owner < placement.owners(); ++owner) {
    selecting.selection.push_back(room_for(placement.shard(owner, range), dtype));
    const ShardSelection& room = selecting.selection.back();
    const SlotTable table = table_of(room);
    selecting.on_host.push_back(
        {map_of(room.shard), table, room.message.data + kHeaderBytes, takes});
    add_scans(selecting.scans, table, totals + owner * kCounts);
    selecting.tiles = std::max(selecting.tiles, table.tiles());
  }
  selecting.count = static_cast<unsigned>(selecting.on_host.size());
  selecting.jobs = step.upload(std::span<const SelectJob>(selecting.on_host));
  return selecting;
}

// From masks and counts of tiles to values, and to the counts on the host.
Selection CudaDevice::gather(Step& step, const Gradient& gradient, Selecting selecting) {
  step.scan(selecting.scans);
  select_gather(gradient.dtype, gradient.data.data, selecting.jobs, selecting.count,
                selecting.tiles, stream_);
  const std::span<const uint64_t> results = step.read_results();
  for (unsigned owner = 0; owner < selecting.count; ++owner)
    set_counts(selecting.selection[owner], results.data() + owner * kCounts);
  return std::move(selecting.selection);
}

Selection CudaDevice::select(const Gradient& gradient, const Placement& placement,
                             WordRange range) {
  check_selectable(gradient, placement, range);
  if (gradient.dgc != nullptr) return dgc_select(gradient, placement, range);
  if (placement.kind() == PlacementKind::hashed_elements)
    return select_elements(gradient, placement, range);
  Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
  uint64_t* totals = step.make_results(static_cast<size_t>(placement.owners()) * kCounts);
  Selecting selecting = rooms(step, placement, range, gradient.dtype, totals);
  select_mark(gradient.dtype, gradient.data.data, selecting.jobs, selecting.count, selecting.tiles,
              stream_);
  Selection selection = gather(step, gradient, std::move(selecting));
  held_.clear();
  return selection;
}

// The non-zeros of a range, ascending.
CudaDevice::Indices CudaDevice::list_nonzeros(const Gradient& gradient, WordRange range) {
  const auto whole = Placement::make(PlacementKind::whole, gradient.numel, 1, 0);
  Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
  uint64_t* totals = step.make_results(kCounts);
  const Shard shard = whole->shard(0, range);
  const Buffer memory = device_memory_(SlotTable::bytes(shard.slots));
  const SelectJob job{map_of(shard), SlotTable::at(memory.data, shard.slots), nullptr};
  const SelectJob* on_device = step.upload(std::span<const SelectJob>(&job, 1));
  select_mark(gradient.dtype, gradient.data.data, on_device, 1, job.table.tiles(), stream_);
  std::vector<ScanList> scans;
  add_scans(scans, job.table, totals);
  step.scan(scans);
  Indices indices;
  indices.count = step.read_results()[kValues];
  indices.memory = device_memory_(indices.count * sizeof(uint32_t));
  hash_list(job, reinterpret_cast<uint32_t*>(indices.memory.data), stream_);
  return indices;
}

// Algorithm 1; then, in the order of each owner's list, what it found.
Selection CudaDevice::select_elements(const Gradient& gradient, const Placement& placement,
                                      WordRange range) {
  const Indices indices = list_nonzeros(gradient, range);
  HierarchicalHash hash = element_hash(placement, indices.count);
  const auto owners = static_cast<size_t>(placement.owners());
  for (;;) {
    Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
    uint64_t* totals = step.make_results(owners * (kCounts + 1));
    HashJob job = job_of(hash);
    job.indices = reinterpret_cast<const uint32_t*>(indices.memory.data);
    job.count = indices.count;
    job.memory =
        reinterpret_cast<uint32_t*>(step.cleared(owners * (hash.r1 + hash.r2) * sizeof(uint32_t)));
    job.appended = totals + owners * kCounts;
    job.listed = reinterpret_cast<uint64_t*>(step.cleared((range.end - range.begin) * 8));
    job.first_element = range.begin * kWordElems;
    hash_insert(job, stream_);
    hash_note(job, stream_);
    Selecting selecting = rooms(step, placement, range, gradient.dtype, totals);
    hash_mark(job.listed, job.first_element, selecting.jobs, selecting.count, selecting.tiles,
              stream_);
    Selection selection = gather(step, gradient, std::move(selecting));
    const auto appended = step.results().subspan(owners * kCounts);
    const uint64_t most = *std::ranges::max_element(appended);
    held_.clear();
    if (most <= hash.r2) return selection;
    hash.r2 = most + hash.r1;  // enough under any order of the threads
  }
}

// `results` gets a word for each input that is not 0 if it is bad, then the same for all of them,
// then the count of each.
CudaDevice::Opening CudaDevice::open(Step& step, std::span<const Input> inputs, uint64_t* results) {
  const auto count = static_cast<unsigned>(inputs.size());
  auto* opened = reinterpret_cast<Opened*>(step.scratch(count * sizeof(Opened)));
  std::vector<OpenJob> jobs;
  std::vector<ScanList> body_scans, bit_scans, presence_scans, count_scans;
  uint64_t tiles = 0, bit_tiles = 0, most_chunks = 0;
  for (unsigned at = 0; at < count; ++at) {
    const Input& input = inputs[at];
    check_alignment(input.message);
    const uint64_t slots = input.shard.slots, own_bit_tiles = OpenJob::bit_tiles(slots);
    OpenJob job;
    job.message = input.message.data;
    job.bytes = input.message.bytes;
    job.map = map_of(input.shard);
    job.expected = input.expected;
    job.dtype = input.dtype;
    job.table = SlotTable::at(step.cleared(SlotTable::bytes(slots)), slots);
    const uint64_t presence_words = words_for_bits(slots);
    job.presence = reinterpret_cast<uint64_t*>(
        step.cleared(8 * (presence_words + job.table.tiles() + 1 + 2 * (own_bit_tiles + 1))));
    job.presence_sums = job.presence + presence_words;
    job.high_sums = job.presence_sums + job.table.tiles() + 1;
    job.flag_sums = job.high_sums + own_bit_tiles + 1;
    if (unpacks_) {
      // Packing saves less than half.
      job.unpacked_bytes =
          std::min(input.shard.elements * size_of(input.dtype), uint64_t{2} * input.message.bytes);
      job.unpacked = step.scratch(job.unpacked_bytes);
      const uint64_t chunks = ChunkCounts{job.unpacked_bytes / size_of(input.dtype)}.chunks();
      job.body_sums = reinterpret_cast<uint64_t*>(step.cleared(8 * (chunks + 1)));
      body_scans.push_back({job.body_sums, chunks});
      most_chunks = std::max(most_chunks, chunks);
    }
    job.opened = opened + at;
    job.bad = results + at;
    job.any_bad = results + count;
    bit_scans.push_back({job.high_sums, own_bit_tiles});
    bit_scans.push_back({job.flag_sums, own_bit_tiles});
    presence_scans.push_back({job.presence_sums, job.table.tiles()});
    add_scans(count_scans, job.table, nullptr);
    count_scans[count_scans.size() - kCounts].total = results + count + 1 + at;
    tiles = std::max(tiles, job.table.tiles());
    bit_tiles = std::max(bit_tiles, own_bit_tiles);
    jobs.push_back(job);
  }
  const OpenJob* on_device = step.upload(std::span<const OpenJob>(jobs));
  open_headers(on_device, count, stream_);
  if (unpacks_) {
    unpack_measure(tables(), on_device, count, most_chunks, stream_);
    step.scan(body_scans);
    unpack_write(tables(), on_device, count, most_chunks, stream_);
  }
  open_count_bits(on_device, count, bit_tiles, stream_);
  step.scan(bit_scans);
  open_numbers(on_device, count, bit_tiles, stream_);
  open_sum_presence(on_device, count, tiles, stream_);
  step.scan(presence_scans);
  open_masks(on_device, count, tiles, stream_);
  step.scan(count_scans);
  open_offsets(on_device, count, tiles, stream_);
  return {on_device, tiles};
}

// Whether all messages are good; `bad` is 0 for those. If not the host says what is wrong with the
// first one, unless it was only packed where nobody expected it.
bool CudaDevice::accepts(std::span<const Input> inputs, std::span<const uint64_t> bad) {
  for (size_t at = 0; at < inputs.size(); ++at) {
    if (bad[at] == 0) continue;
    const Input& input = inputs[at];
    const Buffer copy = pinned_memory_(input.message.bytes);
    cuda::check(
        cudaMemcpyAsync(copy.data, input.message.data, copy.bytes, cudaMemcpyDeviceToHost, stream_),
        "copying a malformed message");
    wait_();
    const OpenMessage opened =
        zen::open(copy, input.shard, input.dtype, input.expected, BufferPool().allocator());
    if (!opened.header.packed || unpacks_)
      throw MalformedMessage("malformed message: a CUDA device cannot read what the host can");
    unpacks_ = true;
    return false;
  }
  return true;
}

Merged CudaDevice::merge(std::span<const Incoming> messages, const Shard& shard, DType dtype,
                         float divisor, const EncodeOptions& options, const Identity& outgoing) {
  if (messages.empty()) throw InvalidArgument("there is no message to merge");
  std::vector<Input> inputs;
  for (const Incoming& incoming : messages)
    inputs.push_back({incoming.message, incoming.expected, incoming.dtype, shard});
  Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
  const size_t count = inputs.size(), totals_at = 2 * count + 1;
  uint64_t* results = step.make_results(totals_at + kCounts);
  const Opening opening = open(step, inputs, results);
  Selection sum;
  sum.push_back(room_for(shard, dtype));
  MergeJob job;
  job.inputs = opening.jobs;
  job.count = static_cast<unsigned>(count);
  job.map = map_of(shard);
  job.table = table_of(sum[0]);
  job.values = sum[0].message.data + kHeaderBytes;
  job.divisor = divisor;
  merge_unite(job, stream_);
  std::vector<ScanList> scans;
  add_scans(scans, job.table, results + totals_at);
  step.scan(scans);
  merge_add(dtype, job, stream_);
  const std::span<const uint64_t> found = step.read_results();
  if (!accepts(inputs, found)) return merge(messages, shard, dtype, divisor, options, outgoing);
  set_counts(sum[0], found.data() + totals_at);
  held_.clear();
  const uint64_t listed = sum[0].count;
  return {encode(std::move(sum), options, outgoing)[0], listed};
}

uint64_t CudaDevice::decode_write(std::span<const Update> updates, const Gradient& gradient) {
  if (updates.empty()) return 0;
  std::vector<Input> inputs;
  for (const Update& update : updates) {
    const uint64_t numel = update.shard.placement->numel();
    if (gradient.numel != numel || gradient.data.bytes < numel * size_of(gradient.dtype))
      throw InvalidArgument("the placement has " + std::to_string(numel) +
                            " elements, the gradient " + std::to_string(gradient.numel) + " in " +
                            std::to_string(gradient.data.bytes) + " bytes");
    const DType dtype = update.dtype.value_or(gradient.dtype);
    if (dtype != gradient.dtype && gradient.dtype != DType::f32)
      throw InvalidArgument(std::string(name_of(gradient.dtype)) +
                            " gradients take values of their "
                            "own type only, not " +
                            name_of(dtype));
    inputs.push_back({update.message, update.expected, dtype, update.shard});
  }
  Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
  const size_t count = inputs.size();
  const Opening opening = open(step, inputs, step.make_results(2 * count + 1));
  cuda::decode_write(gradient.dtype, opening.jobs, static_cast<unsigned>(count), opening.tiles,
                     gradient.data.data, stream_);
  const std::span<const uint64_t> found = step.read_results();
  if (!accepts(inputs, found)) return decode_write(updates, gradient);
  uint64_t listed = 0;
  for (size_t at = 0; at < count; ++at) listed += found[count + 1 + at];
  held_.clear();
  return listed;
}

void CudaDevice::sum(std::span<const Buffer> arrays, DType dtype, float divisor,
                     const Buffer& result) {
  check_lengths(arrays, result);
  std::vector<const std::byte*> table;
  for (const Buffer& array : arrays) table.push_back(array.data);
  Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
  cuda::dense_sum(dtype, step.upload(std::span<const std::byte* const>(table)),
                  static_cast<unsigned>(table.size()), result.bytes / size_of(dtype), divisor,
                  result.data, stream_);
}

void CudaDevice::copy(const Buffer& from, const Buffer& to) {
  cuda::check(cudaMemcpyAsync(to.data, from.data, from.bytes, cudaMemcpyDeviceToDevice, stream_),
              "copying a part of a gradient");
}

// Of the device's own messages, for the host: one wait.
std::vector<Header> CudaDevice::read_headers(std::span<const Buffer> messages) {
  const Buffer beginnings = pinned_memory_(messages.size() * kHeaderBytes);
  for (size_t at = 0; at < messages.size(); ++at)
    cuda::check(cudaMemcpyAsync(beginnings.data + at * kHeaderBytes, messages[at].data,
                                std::min(messages[at].bytes, kHeaderBytes), cudaMemcpyDeviceToHost,
                                stream_),
                "copying a header to the host");
  wait_();
  held_.clear();
  std::vector<Header> headers;
  for (size_t at = 0; at < messages.size(); ++at)
    headers.push_back(read_header(beginnings.span().subspan(at * kHeaderBytes, kHeaderBytes),
                                  messages[at].bytes));
  return headers;
}

void CudaDevice::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
              "copying within the device");
}

std::vector<Buffer> CudaDevice::trim(std::vector<Buffer> received) {
  if (received.empty()) return received;
  const std::vector<Header> headers = read_headers(received);
  for (size_t at = 0; at < received.size(); ++at)
    received[at] = received[at].slice(0, headers[at].message_bytes());
  return received;
}

std::vector<Buffer> CudaDevice::cut(const Buffer& message, int pieces) {
  const Header whole = read_headers({&message, 1})[0];
  const std::vector<Header> headers = piece_headers(whole, pieces);
  held_.push_back(pinned_memory_(headers.size() * kHeaderBytes));
  std::byte* beginning = held_.back().data;
  const std::byte* next = message.data;
  std::vector<Buffer> result;
  for (const Header& header : headers) {
    result.push_back(device_memory_(header.message_bytes()));
    write_header(header, beginning);
    cuda::check(cudaMemcpyAsync(result.back().data, beginning, kHeaderBytes, cudaMemcpyHostToDevice,
                                stream_),
                "copying a header to the device");
    copy(result.back().data + kHeaderBytes, next, header.value_bytes);
    beginning += kHeaderBytes;
    next += header.value_bytes;
  }
  return result;
}

std::vector<Buffer> CudaDevice::join(std::span<const Pieces> messages) {
  std::vector<Buffer> pieces, wholes;
  for (const Pieces& message : messages)
    pieces.insert(pieces.end(), message.pieces.begin(), message.pieces.end());
  if (pieces.empty()) return wholes;
  const std::vector<Header> headers = read_headers(pieces);
  size_t first = 0;
  for (const Pieces& message : messages) {
    const auto own = std::span(headers).subspan(first, message.pieces.size());
    first += own.size();
    wholes.push_back(
        device_memory_(check_pieces(own, message.expected, message.owner, message.max_bytes)));
    std::byte* next = wholes.back().data;
    for (size_t piece = 0; piece < own.size(); ++piece) {
      copy(next, message.pieces[piece].data + kHeaderBytes, own[piece].value_bytes);
      next += own[piece].value_bytes;
    }
  }
  return wholes;
}

}  // namespace zen::cuda
