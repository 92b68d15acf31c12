// How a CudaDevice makes messages. Without packing nothing is waited for: the host chooses from
// counts that it has. With packing it has to know how well the values pack.
#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/value_packing.h"
#include "cuda/cuda_device.h"
#include "cuda/encode.h"
#include "cuda/error.h"
#include "cuda/narrow.h"
#include "cuda/pack.h"
#include "cuda/selection_tables.h"

namespace zen::cuda {

namespace {

size_t raw_bytes(const ShardSelection& shard, const Format& format) {
  return header_of(shard, format, plan_of(shard, format)).message_bytes();
}

// The encodings between which the bytes of packed messages decide: those that csrc/core's
// cheapest_packed() tries.
std::vector<const Format*> formats_of(const ShardSelection& shard, const EncodeOptions& options) {
  if (!options.pack_values || options.choice != Choice::cheapest)
    return {&resolve(shard, options.choice)};
  const uint64_t elements = shard.shard.elements;
  if (shard.count == elements) return {&kDenseFormat};
  const Format* smallest = &kWordsFormat;
  for (const Format* format : {&kPositionsFormat, &kBitmapFormat})
    if (raw_bytes(shard, *format) < raw_bytes(shard, *smallest)) smallest = format;
  const size_t least_dense = kHeaderBytes + min_packed_bytes(shard.dtype, elements);
  if (raw_bytes(shard, *smallest) < least_dense) return {smallest};
  return {smallest, &kDenseFormat};
}

}  // namespace

// A message that is being made.
struct CudaDevice::Draft {
  EncodeJob job;
  Header header;
  Buffer values;  // room for a header, the values as they are, and perhaps an index
  PackJob pack;
  Buffer chunks;  // entries and bodies of `pack`

  uint64_t raw_bytes() const { return header.count * size_of(header.dtype); }
};

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

// Values are in place, those that include unlisted zeros by work that is queued here.
std::vector<CudaDevice::Draft> CudaDevice::drafts_of(Step& step, const Selection& selection,
                                                     const EncodeOptions& options) {
  std::vector<Draft> drafts;
  std::vector<EncodeJob> spreading;
  uint64_t tiles = 0;
  for (const ShardSelection& shard : selection)
    for (const Format* format : formats_of(shard, options)) {
      const Plan plan = plan_of(shard, *format);
      Draft& draft = drafts.emplace_back();
      draft.header = header_of(shard, *format, plan);
      draft.values = shard.message;
      EncodeJob& job = draft.job;
      job.map = map_of(shard.shard);
      job.table = table_of(shard);
      job.encoding = format->encoding;
      job.flags = plan.flags;
      job.values = shard.message.data + kHeaderBytes;
      job.list = list_of(shard, format->encoding);
      if (!job.spreads()) continue;
      draft.values = device_memory_(draft.header.message_bytes());
      job.message = draft.values.data;
      spreading.push_back(job);
      tiles = std::max(tiles, job.table.tiles());
    }
  if (!spreading.empty())
    encode_spread_values(selection[0].dtype, step.upload(std::span<const EncodeJob>(spreading)),
                         static_cast<unsigned>(spreading.size()), tiles, stream_);
  return drafts;
}

const CodeTables* CudaDevice::tables() {
  if (tables_.bytes == 0) {
    const CodeTables tables = CodeTables::make();
    tables_ = device_memory_(sizeof tables);
    held_.push_back(pinned_memory_(sizeof tables));
    std::memcpy(held_.back().data, &tables, sizeof tables);
    cuda::check(cudaMemcpyAsync(tables_.data, held_.back().data, sizeof tables,
                                cudaMemcpyHostToDevice, stream_),
                "copying the codes of packed values to the device");
  }
  return reinterpret_cast<const CodeTables*>(tables_.data);
}

// Finds out how many bytes the values of each draft take, and packs the header of those that gain.
void CudaDevice::measure(Step& step, std::vector<Draft>& drafts) {
  if (drafts.empty()) return;
  uint64_t* totals = step.make_results(drafts.size());
  std::vector<PackJob> jobs;
  std::vector<ScanList> scans;
  uint64_t most = 0;
  for (Draft& draft : drafts) {
    const ChunkCounts counts{draft.header.count};
    const uint64_t chunks = counts.chunks();
    draft.chunks = device_memory_(8 * (2 * chunks + 1));
    auto* words = reinterpret_cast<uint64_t*>(draft.chunks.data);
    draft.pack = {draft.values.data + kHeaderBytes, counts, words, words + chunks, nullptr};
    scans.push_back({draft.pack.bodies, chunks, totals + jobs.size()});
    jobs.push_back(draft.pack);
    most = std::max(most, chunks);
  }
  pack_measure(drafts[0].header.dtype, tables(), step.upload(std::span<const PackJob>(jobs)),
               static_cast<unsigned>(jobs.size()), most, stream_);
  step.scan(scans);
  const std::span<const uint64_t> bodies = step.read_results();
  for (size_t at = 0; at < drafts.size(); ++at) {
    Draft& draft = drafts[at];
    const uint64_t packed = draft.pack.count.chunks() * packing::kEntryBytes + bodies[at] +
                            draft.pack.count.tail() * size_of(draft.header.dtype);
    if (packed >= draft.raw_bytes()) continue;
    draft.header.value_bytes = packed;
    draft.header.packed = true;
  }
}

// Of the drafts of each shard, which follow one another, the one that becomes the message: as
// csrc/core's cheapest_packed() chooses.
std::vector<CudaDevice::Draft> CudaDevice::smallest(std::vector<Draft> drafts) const {
  std::vector<Draft> chosen;
  for (Draft& draft : drafts) {
    const bool alternative = !chosen.empty() && chosen.back().header.owner == draft.header.owner;
    if (!alternative) {
      chosen.push_back(std::move(draft));
      continue;
    }
    const size_t sparse = chosen.back().header.message_bytes();
    const size_t least_dense =
        kHeaderBytes + min_packed_bytes(draft.header.dtype, draft.header.count);
    if (sparse >= least_dense && draft.header.message_bytes() <= sparse)
      chosen.back() = std::move(draft);
  }
  return chosen;
}

std::vector<Buffer> CudaDevice::encode(Selection&& selection, const EncodeOptions& options,
                                       const Identity& identity) {
  if (selection.empty()) return {};
  Step step(stream_, device_memory_, pinned_memory_, wait_, held_);
  if (options.narrow_to) narrow(step, selection, *options.narrow_to);
  std::vector<Draft> drafts = drafts_of(step, selection, options);
  if (options.pack_values) {
    measure(step, drafts);
    drafts = smallest(std::move(drafts));
    unpacks_ = true;  // others are likely to do the same
  }
  std::vector<Buffer> messages;
  std::vector<EncodeJob> jobs;
  std::vector<PackJob> packs;
  uint64_t tiles = 0, chunks = 0;
  for (Draft& draft : drafts) {
    draft.header.identity = identity;
    const Header& header = draft.header;
    const bool fits = !header.packed && draft.values.bytes >= header.message_bytes();
    const Buffer message = fits ? draft.values : device_memory_(header.message_bytes());
    if (header.packed) {
      draft.pack.out = message.data + kHeaderBytes;
      packs.push_back(draft.pack);
      chunks = std::max(chunks, draft.pack.count.chunks());
    } else if (!fits) {
      copy(message.data + kHeaderBytes, draft.values.data + kHeaderBytes, header.value_bytes);
    }
    EncodeJob& job = draft.job;
    job.message = message.data;
    job.value_bytes = header.value_bytes;
    job.index_offset = header.index_offset();
    job.index_words = header.index_bytes / 8;
    write_header(header, job.header);
    messages.push_back(message.slice(0, header.message_bytes()));
    tiles = std::max(tiles, job.table.tiles());
    jobs.push_back(job);
  }
  if (!packs.empty())
    pack_write(selection[0].dtype, tables(), step.upload(std::span<const PackJob>(packs)),
               static_cast<unsigned>(packs.size()), chunks, stream_);
  const auto count = static_cast<unsigned>(jobs.size());
  const EncodeJob* on_device = step.upload(std::span<const EncodeJob>(jobs));
  encode_envelopes(on_device, count, tiles, stream_);
  encode_indices(on_device, count, tiles, stream_);
  return messages;
}

}  // namespace zen::cuda
