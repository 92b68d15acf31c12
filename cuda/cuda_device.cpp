#include "cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/buffer_pool.h"
#include "core/error.h"
#include "core/format.h"
#include "core/fragment.h"
#include "core/select.h"
#include "core/select_elements.h"
#include "cuda/decode_write.h"
#include "cuda/dense_sum.h"
#include "cuda/encode.h"
#include "cuda/error.h"
#include "cuda/hash_elements.h"
#include "cuda/merge.h"
#include "cuda/narrow.h"
#include "cuda/scan.h"
#include "cuda/select.h"
#include "cuda/step.h"

namespace zen::cuda {

namespace {

SlotTable table_of(const ShardSelection& selection) {
  return SlotTable::at(selection.masks.data, selection.shard.slots);
}

uint64_t block_elements_of(const ShardSelection& selection) {
  return *reinterpret_cast<const uint64_t*>(selection.presence.data);
}

// The counts of a selection, in the order of Count.
void set_counts(ShardSelection& selection, const uint64_t* totals) {
  selection.count = totals[kValues];
  selection.present_words = totals[kPresent];
  selection.full_words = totals[kFull];
  auto block_elements = std::make_shared<uint64_t>(totals[kBlockElements]);
  selection.presence = {reinterpret_cast<std::byte*>(block_elements.get()), sizeof(uint64_t),
                        block_elements};
}

// Scans of a table's four counts; the totals go to totals[0, kCounts), if not null.
void add_scans(std::vector<ScanList>& lists, const SlotTable& table, uint64_t* totals) {
  for (int which = 0; which < kCounts; ++which)
    lists.push_back(
        {table.count(which), table.tiles(), totals == nullptr ? nullptr : totals + which});
}

void run_scans(Step& step, const std::vector<ScanList>& lists, cudaStream_t stream) {
  scan(step.upload(std::span<const ScanList>(lists)), static_cast<unsigned>(lists.size()), stream);
}

// core's plan goes by counts alone, but for `blocks`, whose count was taken on the device.
Plan plan_of(const ShardSelection& selection, const Format& format) {
  if (format.encoding != Encoding::blocks) return format.plan(selection);
  const uint64_t elements = block_elements_of(selection);
  return {elements, (elements + kWordElems - 1) / kWordElems,
          8 * words_for_bits((selection.shard.slots + 3) / 4), 0};
}

EliasFano list_of(const ShardSelection& selection, Encoding encoding) {
  if (encoding == Encoding::positions) return {selection.count, selection.shard.elements};
  return {selection.present_words, selection.shard.slots};
}

void refuse_packing(const EncodeOptions& options) {
  if (options.pack_values)
    throw InvalidArgument("values cannot be packed on a CUDA device: use pack_values=False");
}

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

// Rooms, and what kernels know of them.
struct CudaDevice::Selecting {
  Selection selection;
  std::vector<SelectJob> on_host;
  const SelectJob* jobs = nullptr;  // device memory
  unsigned count = 0;
  uint64_t tiles = 0;  // of the largest shard
  std::vector<ScanList> scans;
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
CudaDevice::Selecting CudaDevice::rooms(Step& step, const Placement& placement, WordRange range,
                                        DType dtype, uint64_t* totals) {
  Selecting selecting;
  for (int owner = 0; owner < placement.owners(); ++owner) {
    selecting.selection.push_back(room_for(placement.shard(owner, range), dtype));
    const ShardSelection& room = selecting.selection.back();
    const SlotTable table = table_of(room);
    selecting.on_host.push_back({map_of(room.shard), table, room.message.data + kHeaderBytes});
    add_scans(selecting.scans, table, totals + owner * kCounts);
    selecting.tiles = std::max(selecting.tiles, table.tiles());
  }
  selecting.count = static_cast<unsigned>(selecting.on_host.size());
  selecting.jobs = step.upload(std::span<const SelectJob>(selecting.on_host));
  return selecting;
}

// From masks and counts of tiles to values, and to the counts on the host.
Selection CudaDevice::gather(Step& step, const Gradient& gradient, Selecting selecting) {
  run_scans(step, selecting.scans, stream_);
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
  if (gradient.dgc != nullptr)
    throw InvalidArgument("DGC does not run on a CUDA device: use no compressor");
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
  run_scans(step, scans, stream_);
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

// The narrow values get a room of their own: threads that wrote them over the wide ones would
// overtake each other.
void CudaDevice::narrow(Step& step, Selection& selection, DType dtype) {
  std::vector<NarrowJob> jobs;
  std::vector<Buffer> wide;
  uint64_t most = 0;
  for (ShardSelection& shard : selection) {
    if (shard.dtype == dtype) continue;
    if (shard.dtype != DType::f32)
      throw InvalidArgument(std::string("only float32 values can be narrowed, not ") +
                            name_of(shard.dtype));
    wide.push_back(
        std::exchange(shard.message, device_memory_(selection_capacity(shard.shard, dtype))));
    shard.dtype = dtype;
    jobs.push_back(
        {wide.back().data + kHeaderBytes, shard.message.data + kHeaderBytes, shard.count});
    most = std::max(most, shard.count);
  }
  if (jobs.empty()) return;
  cuda::narrow(dtype, step.upload(std::span<const NarrowJob>(jobs)),
               static_cast<unsigned>(jobs.size()), most, stream_);
}

std::vector<Buffer> CudaDevice::encode(Selection&& selection, const EncodeOptions& options,
                                       const Identity& identity) {
  refuse_packing(options);
  Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
  if (options.narrow_to) narrow(step, selection, *options.narrow_to);
  std::vector<Buffer> messages;
  std::vector<EncodeJob> jobs;
  uint64_t tiles = 0;
  bool spreads = false;
  for (const ShardSelection& shard : selection) {
    const Format& format = resolve(shard, options.choice);
    const Plan plan = plan_of(shard, format);
    Header header = header_of(shard, format, plan);
    header.identity = identity;
    EncodeJob job;
    job.map = map_of(shard.shard);
    job.table = table_of(shard);
    job.encoding = format.encoding;
    job.flags = plan.flags;
    job.values = shard.message.data + kHeaderBytes;
    job.value_bytes = header.value_bytes;
    job.index_offset = header.index_offset();
    job.index_words = header.index_bytes / 8;
    job.list = list_of(shard, format.encoding);
    write_header(header, job.header);
    const bool fits = !job.spreads() && shard.message.bytes >= header.message_bytes();
    const Buffer message = fits ? shard.message : device_memory_(header.message_bytes());
    if (!fits && !job.spreads()) copy(message.data + kHeaderBytes, job.values, header.value_bytes);
    job.message = message.data;
    messages.push_back(message.slice(0, header.message_bytes()));
    tiles = std::max(tiles, job.table.tiles());
    spreads = spreads || job.spreads();
    jobs.push_back(job);
  }
  const auto count = static_cast<unsigned>(jobs.size());
  const EncodeJob* on_device = step.upload(std::span<const EncodeJob>(jobs));
  encode_envelopes(on_device, count, tiles, stream_);
  if (spreads) encode_spread_values(selection[0].dtype, on_device, count, tiles, stream_);
  encode_indices(on_device, count, tiles, stream_);
  return messages;
}

// `results` gets a word for each input that is not 0 if it is bad, then the same for all of them,
// then the count of each.
CudaDevice::Opening CudaDevice::open(Step& step, std::span<const Input> inputs, uint64_t* results) {
  const auto count = static_cast<unsigned>(inputs.size());
  auto* opened = reinterpret_cast<Opened*>(step.scratch(count * sizeof(Opened)));
  std::vector<OpenJob> jobs;
  std::vector<ScanList> bit_scans, presence_scans, count_scans;
  uint64_t tiles = 0, bit_tiles = 0;
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
  open_count_bits(on_device, count, bit_tiles, stream_);
  run_scans(step, bit_scans, stream_);
  open_numbers(on_device, count, bit_tiles, stream_);
  open_sum_presence(on_device, count, tiles, stream_);
  run_scans(step, presence_scans, stream_);
  open_masks(on_device, count, tiles, stream_);
  run_scans(step, count_scans, stream_);
  open_offsets(on_device, count, tiles, stream_);
  return {on_device, tiles};
}

// Lets the host say what is wrong with the first bad message. `bad` is 0 for a good one.
void CudaDevice::check(std::span<const Input> inputs, std::span<const uint64_t> bad) {
  for (size_t at = 0; at < inputs.size(); ++at) {
    if (bad[at] == 0) continue;
    const Input& input = inputs[at];
    const Buffer copy = pinned_memory_(input.message.bytes);
    cuda::check(
        cudaMemcpyAsync(copy.data, input.message.data, copy.bytes, cudaMemcpyDeviceToHost, stream_),
        "copying a malformed message");
    wait_();
    zen::open(copy, input.shard, input.dtype, input.expected, BufferPool().allocator());
    throw MalformedMessage("malformed message: a CUDA device cannot read packed values");
  }
}

Merged CudaDevice::merge(std::span<const Incoming> messages, const Shard& shard, DType dtype,
                         float divisor, const EncodeOptions& options, const Identity& outgoing) {
  refuse_packing(options);
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
  run_scans(step, scans, stream_);
  merge_add(dtype, job, stream_);
  const std::span<const uint64_t> found = step.read_results();
  check(inputs, found);
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
  check(inputs, found);
  uint64_t listed = 0;
  for (size_t at = 0; at < count; ++at) listed += found[count + 1 + at];
  held_.clear();
  return listed;
}

void CudaDevice::sum(std::span<const Buffer> arrays, DType dtype, float divisor,
                     const Buffer& result) {
  std::vector<const std::byte*> table;
  for (const Buffer& array : arrays) {
    if (array.bytes != result.bytes)
      throw InvalidArgument("an array of " + std::to_string(array.bytes) +
                            " bytes cannot be added to one of " + std::to_string(result.bytes));
    table.push_back(array.data);
  }
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
