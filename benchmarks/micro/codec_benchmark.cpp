// How close do the CPU kernels come to what memory allows?
//
// Every operation is compared with this core's own bandwidth, measured in the same run:
//   select_encode  bytes of the gradient over time, against reading it
//   merge          cache lines of the messages read and written over time, against copying
//   decode_write   cache lines of the messages and of the gradient over time, against copying
//   open           bytes of the message over time, against reading it
// Operations and bandwidth probes take turns, so that a slow moment of the machine meets all of
// them; medians are reported. Answers are checked before anything is timed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <time.h>

#include "bandwidth.h"
#include "core/bits.h"
#include "core/buffer_pool.h"
#include "core/codec.h"
#include "core/cpu_features.h"
#include "core/decode_write.h"
#include "core/merge.h"
#include "core/select.h"
#include "synthetic.h"

namespace zen::bench {
namespace {

constexpr size_t kLine = 64;
constexpr int kOwners = 4;  // and ranks
constexpr Identity kIdentity{};

struct Options {
  uint64_t elements = uint64_t{32} << 20;
  int repetitions = 9;
  std::string output = "runs/codec.json";
  std::vector<DType> dtypes{DType::f32, DType::bf16};
  std::vector<double> densities{0.001, 0.01, 0.05, 0.2};
};

struct Row {
  std::string operation, encoding, pattern, bandwidth;
  DType dtype;
  double density;
  double seconds = 0;
  size_t bytes = 0;
  double entropy = 0;
  double ratio = 0;
};

// An operation to be timed, and the memory it touches.
struct Task {
  std::string operation, encoding, bandwidth;
  size_t bytes = 0;
  std::function<void()> run;
  std::vector<double> seconds;

  double median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
  double rate() { return static_cast<double>(bytes) / median(); }
};

// Processor time of this thread: what other processes take does not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void time_interleaved(std::vector<Task>& tasks, int repetitions) {
  for (int repetition = -1; repetition < repetitions; ++repetition)  // -1 warms up
    for (Task& task : tasks) {
      const double begin = thread_seconds();
      task.run();
      const double elapsed = thread_seconds() - begin;
      if (repetition >= 0) task.seconds.push_back(elapsed);
    }
}

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("wrong answer: ") + what);
}

bool same_bytes(const Buffer& a, const Buffer& b) {
  return a.bytes == b.bytes && std::memcmp(a.data, b.data, a.bytes) == 0;
}

// Distinct cache lines of the gradient that the message writes.
size_t lines_written(const OpenMessage& message, DType dtype) {
  const auto per_line = static_cast<int>(kLine / size_of(dtype));
  size_t lines = 0;
  for (uint32_t i = 0; i < message.header.present_words; ++i)
    for (uint64_t mask = message.mask_list()[i]; mask != 0;
         mask &= ~(low_bits(static_cast<uint64_t>(per_line))
                   << std::countr_zero(mask) / per_line * per_line))
      ++lines;
  return lines;
}

size_t opened_bytes(const OpenMessage& message) {
  return message.header.value_bytes + message.header.present_words * 8 + message.presence.bytes;
}

// One density, pattern and dtype: inputs, expected answers and tasks.
class Scenario {
 public:
  Scenario(DType dtype, const Pattern& pattern, double density, uint64_t elements,
           const Allocate& allocate)
      : dtype_(dtype),
        allocate_(allocate),
        hashed_(Placement::make(PlacementKind::hashed, elements, kOwners, 1)),
        whole_(Placement::make(PlacementKind::whole, elements, 1, 1)) {
    for (int rank = 0; rank < kOwners; ++rank) {
      gradients_.push_back({allocate(elements * size_of(dtype)), dtype, elements});
      nonzeros_ = make_sparse(gradients_.back(), pattern, density, static_cast<uint64_t>(rank));
    }
    target_ = {allocate(elements * size_of(dtype)), dtype, elements};
    entropy_ = entropy_bytes(gradients_.back(), pattern, nonzeros_);
    prepare();
  }

  double entropy() const { return entropy_; }

  std::vector<Task> tasks() {
    const size_t gradient_bytes = target_.data.bytes;
    size_t written = 0, merged = opened_bytes(sum_), message_bytes = 0;
    for (int owner = 0; owner < kOwners; ++owner) {
      const OpenMessage& message = opened_[static_cast<size_t>(owner)];
      written += opened_bytes(message) + lines_written(message, dtype_) * kLine;
      merged += opened_bytes(pushed_[static_cast<size_t>(owner)]);
      message_bytes += message.message.bytes;
    }
    return {
        {"read", "", "read", read_bytes(gradient_bytes), [this] { read(); }, {}},
        {"copy", "", "copy", copy_bytes(gradient_bytes), [this] { copy(); }, {}},
        {"fill", "", "fill", fill_bytes(gradient_bytes), [this] { fill(); }, {}},
        {"select_encode", "words", "read", gradient_bytes, [this] { select_encode(); }, {}},
        {"merge", "words", "copy", merged, [this] { merge_all(preferred_isa()); }, {}},
        {"decode_write", "words", "copy", written, [this] { write_all(); }, {}},
        {"open", "words", "read", message_bytes, [this] { open_all(); }, {}},
    };
  }

 private:
  void prepare() {
    messages_ = select_encode();
    open_all();
    std::memset(target_.data.data, 0, target_.data.bytes);
    write_all();
    require(same_bytes(target_.data, gradients_[0].data), "select, encode, open, decode_write");
    for (const Gradient& gradient : gradients_) {
      Selection selection = select(gradient, *whole_, whole_->all(), allocate_);
      pushed_.push_back(open(encode(std::move(selection[0]), Choice::words, kIdentity, allocate_),
                             whole(), dtype_, kIdentity, allocate_));
    }
    Buffer fast = merge_all(preferred_isa()), plain = merge_all(Isa::scalar);
    require(same_bytes(fast, plain), "merge differs from the scalar merge");
    sum_ = open(fast, whole(), dtype_, kIdentity, allocate_);
  }

  Shard whole() const { return whole_->shard(0, whole_->all()); }
  Shard shard(int owner) const { return hashed_->shard(owner, hashed_->all()); }

  void read() { sink_ = read_all(target_.data.data, target_.data.bytes); }
  void copy() { copy_all(gradients_[1].data.data, target_.data.data, target_.data.bytes); }
  void fill() { fill_all(target_.data.data, target_.data.bytes); }

  std::vector<Buffer> select_encode() {
    std::vector<Buffer> messages;
    for (ShardSelection& selection : select(gradients_[0], *hashed_, hashed_->all(), allocate_))
      messages.push_back(encode(std::move(selection), Choice::words, kIdentity, allocate_));
    return messages;
  }

  Buffer merge_all(Isa isa) {
    return encode(merge(pushed_, whole(), dtype_, 4, allocate_, isa), Choice::words, kIdentity,
                  allocate_);
  }

  void open_all() {
    opened_.clear();
    for (int owner = 0; owner < kOwners; ++owner)
      opened_.push_back(
          open(messages_[static_cast<size_t>(owner)], shard(owner), dtype_, kIdentity, allocate_));
  }

  void write_all() {
    std::vector<Shard> shards;
    for (int owner = 0; owner < kOwners; ++owner) shards.push_back(shard(owner));
    decode_write(opened_, shards, target_);
  }

  DType dtype_;
  Allocate allocate_;
  std::shared_ptr<const Placement> hashed_, whole_;
  std::vector<Gradient> gradients_;  // of all ranks
  Gradient target_;
  uint64_t nonzeros_ = 0;
  double entropy_ = 0;
  std::vector<Buffer> messages_;     // of gradient 0, by owner
  std::vector<OpenMessage> opened_;  // the same
  std::vector<OpenMessage> pushed_;  // all elements of a gradient, by rank
  OpenMessage sum_;                  // of pushed_
  volatile uint64_t sink_ = 0;
};

std::vector<Row> measure(DType dtype, const Pattern& pattern, double density,
                         const Options& options, const Allocate& allocate) {
  Scenario scenario(dtype, pattern, density, options.elements, allocate);
  std::vector<Task> tasks = scenario.tasks();
  time_interleaved(tasks, options.repetitions);
  std::map<std::string, double> rates;
  for (int probe = 0; probe < 3; ++probe)
    rates[tasks[static_cast<size_t>(probe)].operation] = tasks[static_cast<size_t>(probe)].rate();
  std::vector<Row> rows;
  for (Task& task : tasks)
    rows.push_back({task.operation, task.encoding, pattern.name, task.bandwidth, dtype, density,
                    task.median(), task.bytes,
                    task.operation == "select_encode" ? scenario.entropy() : 0,
                    task.rate() / rates[task.bandwidth]});
  return rows;
}

void print(const Row& row) {
  std::printf("%-14s %-6s %-8s %-9s %7.3f%% %9.3f ms %8.2f GB/s %6.1f%% of %s\n",
              row.operation.c_str(), row.encoding.c_str(), row.pattern.c_str(), name_of(row.dtype),
              row.density * 100, row.seconds * 1e3,
              static_cast<double>(row.bytes) / row.seconds * 1e-9, row.ratio * 100,
              row.bandwidth.c_str());
}

void write_json(const std::vector<Row>& rows, const std::string& path) {
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder);
  std::ofstream out(path);
  if (!out) throw std::runtime_error("cannot write " + path);
  const char* separator = "[\n";
  for (const Row& row : rows) {
    out << separator << "  {\"operation\": \"" << row.operation << "\", \"encoding\": \""
        << row.encoding << "\", \"pattern\": \"" << row.pattern << "\", \"dtype\": \""
        << name_of(row.dtype) << "\", \"density\": " << row.density
        << ", \"threads\": 1, \"seconds\": " << row.seconds << ", \"bytes\": " << row.bytes
        << ", \"entropy_bytes\": " << row.entropy << ", \"ratio_to_bandwidth\": " << row.ratio
        << ", \"bandwidth\": \"" << row.bandwidth << "\"}";
    separator = ",\n";
  }
  out << "\n]\n";
}

std::vector<double> parse_densities(const char* text) {
  std::vector<double> densities;
  for (char* end = nullptr; *text != 0; text = *end == ',' ? end + 1 : end) {
    densities.push_back(std::strtod(text, &end));
    if (end == text || densities.back() <= 0 || densities.back() >= 1)
      throw std::runtime_error("--densities wants numbers between 0 and 1, as in 0.01,0.2");
  }
  return densities;
}

DType parse_dtype(std::string_view name) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (name == name_of(dtype)) return dtype;
  throw std::runtime_error("--dtype wants float32, float16 or bfloat16");
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    if (name == "--elements")
      options.elements = std::strtoull(argv[i + 1], nullptr, 10);
    else if (name == "--repetitions")
      options.repetitions = std::atoi(argv[i + 1]);
    else if (name == "--densities")
      options.densities = parse_densities(argv[i + 1]);
    else if (name == "--dtype")
      options.dtypes = {parse_dtype(value)};
    else if (name == "--output")
      options.output = value;
    else
      throw std::runtime_error("unknown option " + std::string(name) +
                               "; use --elements, --repetitions, --densities, --dtype or --output");
  }
  if (options.elements < kRowElems || options.elements % kRowElems != 0 || options.repetitions < 1)
    throw std::runtime_error("--elements must be a positive multiple of 512, --repetitions >= 1");
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::printf("%s kernels, %llu elements, %d owners and ranks, median of %d\n",
              name_of(preferred_isa()), static_cast<unsigned long long>(options.elements), kOwners,
              options.repetitions);
  BufferPool pool(size_t{8} << 30);
  std::vector<Row> rows;
  for (DType dtype : options.dtypes)
    for (const Pattern& pattern : {uniform_pattern(), row_pattern()})
      for (double density : options.densities)
        for (const Row& row : measure(dtype, pattern, density, options, pool.allocator())) {
          print(row);
          rows.push_back(row);
        }
  write_json(rows, options.output);
  return 0;
}

}  // namespace
}  // namespace zen::bench

int main(int argc, char** argv) {
  try {
    return zen::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
