#include "torch/engine.h"

#include <pthread.h>

#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "core/error.h"
#include "schemes/fingerprint.h"
#include "schemes/node_exchange.h"
#include "torch/stage_recorder.h"
#include "torch/tensor_dtype.h"

namespace zen {

namespace {

constexpr size_t kInFlight = 2;  // one bucket on the wire while the next is prepared

// Whose thread this is, if any's. The id of a thread would not do: it is given to another thread
// after a join, and reading it while somebody joins is a race.
thread_local const Engine* engine_of_this_thread = nullptr;

// Of the dtypes that no scheme handles, those that the backend's all-reduce does.
bool backend_can_add(at::ScalarType dtype) {
  return dtype == at::kDouble || dtype == at::kByte || dtype == at::kChar || dtype == at::kInt ||
         dtype == at::kLong;
}

// Drawn anew for every group, so that no gradient can be unlucky with it for ever.
uint32_t shared_seed(Lanes& transport) {
  return transport.broadcast(std::random_device{}());
}

std::optional<Mode> mode_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const Mode mode : {Mode::capacity, Mode::exact})
    if (name == name_of(mode)) return mode;
  throw InvalidArgument("unknown transport '" + name + "': choose capacity or exact");
}

std::optional<DType> wire_dtype_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (name == name_of(dtype)) return dtype;
  throw InvalidArgument("unknown wire_dtype '" + name + "': choose bfloat16, or none");
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The backend's all-reduce as an exchange, for dtypes that no scheme handles.
class BackendReduction final : public Exchange {
 public:
  BackendReduction(Lane& lane, Observer& observer, at::Tensor tensor, Reduce reduce)
      : lane_(lane), observer_(observer), tensor_(std::move(tensor)), reduce_(reduce) {}

  void prepare() override {}
  void post() override {}
  void finish() override {
    const StageScope scope(observer_, Stage::reduce);
    if (lane_.node() != nullptr) lane_.node()->all_reduce(tensor_, reduce_);
    if (lane_.group().size() > 1) lane_.group().all_reduce(tensor_, reduce_);
  }
  Report report() const override { return {}; }

 private:
  Lane& lane_;
  Observer& observer_;
  at::Tensor tensor_;
  Reduce reduce_;
};

// Every step of the exchange on the device and stream of its lane.
class OnLane final : public Exchange {
 public:
  OnLane(const Lane& lane, std::unique_ptr<Exchange> inner)
      : lane_(lane), inner_(std::move(inner)) {}

  void prepare() override {
    const auto inside = lane_.enter();
    inner_->prepare();
  }
  void post() override {
    const auto inside = lane_.enter();
    inner_->post();
  }
  void finish() override {
    const auto inside = lane_.enter();
    inner_->finish();
  }
  Report report() const override { return inner_->report(); }

 private:
  const Lane& lane_;
  std::unique_ptr<Exchange> inner_;
};

// What is left to do alone, or with an empty tensor.
class NoExchange final : public Exchange {
 public:
  void prepare() override {}
  void post() override {}
  void finish() override {}
  Report report() const override { return {}; }
};

}  // namespace

void check_options(const Options& options) {
  const std::optional<DType> wire_dtype = wire_dtype_of(options.wire_dtype);
  if (options.scheme == kAuto)  // it asks for bf16 of those that can
    check_options(find_scheme("balanced_parallelism"), false, wire_dtype);
  else
    check_options(find_scheme(options.scheme), options.pack_values.value_or(false), wire_dtype);
}

void check_supported(const at::Tensor& tensor, Reduce reduce) {
  if (tensor.layout() != at::kStrided)
    throw InvalidArgument(
        "the tensor is sparse: use dense gradients (sparse=False in nn.Embedding), zensync finds "
        "the zeros itself");
  if (!tensor.is_cpu() && !(tensor.is_cuda() && built_for_cuda()))
    throw InvalidArgument("this build handles CPU" +
                          std::string(built_for_cuda() ? " and CUDA" : "") +
                          " tensors only, and the tensor is on " + tensor.device().str());
  const std::string dtype = dtype_name(tensor);
  if (tensor.is_complex())
    throw InvalidArgument(dtype + " is not supported: reduce torch.view_as_real() of it");
  if (scheme_dtype(tensor)) return;
  if (!backend_can_add(tensor.scalar_type()))
    throw InvalidArgument(dtype + " is not supported: convert to a type that can be added");
  if (reduce == Reduce::mean && !tensor.is_floating_point())
    throw InvalidArgument("the mean of " + dtype + " is not defined: use op='sum'");
}

// A request on its way through the pipeline.
class Engine::Job final : public Task {
 public:
  Job(Engine& engine, Request request)
      : engine_(engine),
        request_(std::move(request)),
        arrival_(request_.tensor),
        dtype_(scheme_dtype(request_.tensor)) {}

  std::string name() const override { return request_.name; }
  std::string_view stage() const override { return recorder_.latest(); }
  std::string where() const override {
    return name() + " of iteration " + std::to_string(iteration_);
  }
  bool consults() override { return is_chosen() && engine_.chooser_->is_due(key()); }
  Layout subject() override;
  void consult(uint32_t sequence) override;
  Layout layout() override;
  std::unique_ptr<Exchange> exchange(uint32_t sequence) override;
  void done(const Report& report, const Traffic& traffic) noexcept override;
  void failed(const std::string& message) noexcept override;

  // Whether DGC is to compress it. Anything a scheme cannot carry goes as it is, or fails later.
  bool is_compressed() const {
    return request_.dgc && dtype_ && request_.tensor.layout() == at::kStrided &&
           engine_.ranks() > 1;
  }
  bool is_on_cpu() const { return request_.tensor.is_cpu(); }
  bool ends_iteration() const { return request_.last; }
  // The memory outlives the exchange: parts of it may be on the wire when the exchange fails.
  Gradient gradient() const {
    return {{static_cast<std::byte*>(request_.tensor.data_ptr()), request_.tensor.nbytes(),
             std::make_shared<c10::Storage>(request_.tensor.storage())},
            *dtype_,
            numel()};
  }
  const DgcRequest& dgc() const { return *request_.dgc; }

 private:
  void add_nodes(Layout& layout);
  // Whether the engine's chooser says how it travels.
  bool is_chosen() const {
    return engine_.chooser_ && dtype_ && numel() > 0 && engine_.transport_->size() > 1 &&
           request_.tensor.layout() == at::kStrided && request_.tensor.device().is_cpu();
  }
  BucketKey key() const { return {request_.bucket, *dtype_, numel()}; }
  Choosable choice() const {
    return is_chosen() ? engine_.chooser_->choice(key()) : engine_.fixed_;
  }
  std::unique_ptr<Exchange> plain_exchange(uint32_t sequence);
  void check_memory() const;
  std::unique_ptr<Exchange> node_exchange(uint32_t sequence);
  std::unique_ptr<Exchange> scheme_exchange(uint32_t sequence, const Gradient& gradient);
  uint64_t numel() const { return static_cast<uint64_t>(request_.tensor.numel()); }
  // Elements that this rank synchronises with other nodes.
  uint64_t own_numel() const {
    const Transport* node = engine_.transport_->node();
    if (node == nullptr) return numel();
    return elements_of(node_parts(numel(), node->size())[node->rank()], numel());
  }
  // Of a sum over so many ranks.
  float divisor(int ranks) const {
    return request_.reduce == Reduce::mean ? static_cast<float>(ranks) : 1;
  }

  Engine& engine_;
  Request request_;
  Arrival arrival_;
  Lane* lane_ = nullptr;  // once the layout is known
  std::optional<DType> dtype_;
  StageRecorder recorder_;
  Plan plan_;
  uint32_t node_layout_ = 0;
  uint64_t iteration_ = 0;
  bool packs_ = false;
};

// Of DGC.
void Engine::Job::check_memory() const {
  const at::Device device = request_.tensor.device();
  if (!device.is_cpu() && engine_.dgc_->clips())
    throw InvalidArgument("DGC clips gradients on CPUs only: use clip_norm=0 on a GPU");
  for (const at::Tensor* memory : {&request_.dgc->residual, &request_.dgc->momentum})
    if (memory->defined() && memory->device() != device)
      throw InvalidArgument("the memory of DGC is on " + memory->device().str() +
                            ", the bucket on " + device.str());
}

Layout Engine::Job::subject() {
  iteration_ = engine_.iteration_;
  return engine_.chooser_->subject(key());
}

void Engine::Job::consult(uint32_t sequence) {
  check_supported(request_.tensor, request_.reduce);
  const int chunks = engine_.planner_->chunks(request_.tensor.nbytes());
  if (is_compressed()) return engine_.chooser_->consult(key(), sequence, nullptr, chunks);
  const Gradient readable = gradient();
  engine_.chooser_->consult(key(), sequence, &readable, chunks);
}

Layout Engine::Job::layout() {
  iteration_ = engine_.iteration_;
  if (request_.last) ++engine_.iteration_;
  check_supported(request_.tensor, request_.reduce);
  if (request_.dgc) check_memory();
  lane_ = &engine_.transport_->at(request_.tensor.device());
  arrival_.hand_to(lane_->stream(), request_.tensor);
  if (request_.dgc)
    for (const at::Tensor* memory : {&request_.dgc->residual, &request_.dgc->momentum})
      if (memory->defined()) arrival_.hand_to(lane_->stream(), *memory);
  std::string what = request_.reduce == Reduce::mean ? "mean of " : "sum of ";
  what += std::to_string(numel()) + " " + dtype_name(request_.tensor) + " elements by ";
  Layout layout{.fingerprint = 0, .description = "", .always_agree = request_.always_agree};
  if (dtype_) {
    const Choosable chosen = choice();
    plan_ = engine_.planner_->plan(*chosen.scheme, *dtype_, numel(), divisor(engine_.nodes()));
    packs_ = chosen.pack_values;
    layout.fingerprint = plan_.fingerprint;
    what += std::string(chosen.scheme->name) + " in " + std::to_string(plan_.chunks) + " chunks";
    if (plan_.wire_dtype) what += std::string(" as ") + zen::name_of(*plan_.wire_dtype);
  } else {
    what += "the backend";
    Fingerprint fingerprint;
    fingerprint.add(what);
    layout.fingerprint = fingerprint.result();
  }
  layout.description = name() + ", " + what + ", transport " + name_of(engine_.mode_);
  if (engine_.transport_->node() != nullptr) add_nodes(layout);
  return layout;
}

// What all ranks agree on is the whole bucket; the plan is that of this rank's part.
void Engine::Job::add_nodes(Layout& layout) {
  Fingerprint fingerprint;
  fingerprint.add(layout.fingerprint);
  fingerprint.add(static_cast<uint64_t>(engine_.ranks_per_node()));
  layout.fingerprint = fingerprint.result();
  layout.description += ", " + std::to_string(engine_.ranks_per_node()) + " ranks per node";
  node_layout_ = static_cast<uint32_t>(layout.fingerprint);
  if (dtype_)
    plan_ = engine_.planner_->plan(*plan_.scheme, *dtype_, own_numel(), divisor(engine_.nodes()));
}

std::unique_ptr<Exchange> Engine::Job::exchange(uint32_t sequence) {
  const auto inside = lane_->enter();
  auto exchange = plain_exchange(sequence);
  if (lane_->stream()) exchange = std::make_unique<OnLane>(*lane_, std::move(exchange));
  if (is_chosen()) engine_.chooser_->begin(key());
  return request_.dgc && request_.last ? engine_.dgc_->ending_iteration(std::move(exchange))
                                       : std::move(exchange);
}

std::unique_ptr<Exchange> Engine::Job::plain_exchange(uint32_t sequence) {
  if (engine_.ranks() == 1 || numel() == 0) return std::make_unique<NoExchange>();
  if (!dtype_)
    return std::make_unique<BackendReduction>(*lane_, recorder_, request_.tensor, request_.reduce);
  if (lane_->node() != nullptr) return node_exchange(sequence);
  if (!is_compressed()) return scheme_exchange(sequence, gradient());
  return scheme_exchange(sequence, engine_.dgc_->compressed(lane_->device(), gradient(), dgc()));
}

std::unique_ptr<Exchange> Engine::Job::node_exchange(uint32_t sequence) {
  const auto between_nodes = [this, sequence](const Gradient& part) -> std::unique_ptr<Exchange> {
    if (engine_.nodes() == 1) return std::make_unique<NoExchange>();
    return scheme_exchange(sequence, part);
  };
  const Gradient whole = gradient();
  return make_node_exchange({.device = lane_->device(),
                             .node = *lane_->node(),
                             .observer = recorder_,
                             .gradient = whole,
                             .layout = node_layout_,
                             .sequence = sequence,
                             .divisor = divisor(engine_.ranks_per_node()),
                             .between_nodes = between_nodes});
}

std::unique_ptr<Exchange> Engine::Job::scheme_exchange(uint32_t sequence,
                                                       const Gradient& gradient) {
  return plan_.scheme->make({.device = lane_->device(),
                             .transport = lane_->transport(),
                             .observer = recorder_,
                             .gradient = gradient,
                             .placement = plan_.placement,
                             .layout = static_cast<uint32_t>(plan_.fingerprint),
                             .sequence = sequence,
                             .divisor = divisor(engine_.nodes()),
                             .chunks = plan_.chunks,
                             .pack_values = packs_,
                             .wire_dtype = plan_.wire_dtype});
}

void Engine::Job::done(const Report& report, const Traffic& traffic) noexcept {
  const int nodes = engine_.nodes();
  if (is_chosen()) engine_.chooser_->end(key(), report, recorder_.seconds());
  engine_.statistics_.add(
      {.index = request_.bucket,
       .dtype = dtype_name(request_.tensor),
       .scheme = dtype_ ? std::string(plan_.scheme->name) : "allreduce",
       .packed = packs_,
       .numel = own_numel(),
       .chunks = plan_.chunks,
       .traffic = traffic,
       .dense_bytes = ring_all_reduce_bytes(own_numel() * request_.tensor.itemsize(), nodes),
       .counts_nonzeros = plan_.scheme != nullptr && plan_.scheme->has_placement && nodes > 1,
       .report = report,
       .seconds = recorder_.seconds()},
      request_.last);
  if (request_.last) engine_.transport_->end_iteration();
  --engine_.unfinished_;
  const auto inside = lane_->enter();
  request_.completion->done();
}

void Engine::Job::failed(const std::string& message) noexcept {
  --engine_.unfinished_;
  request_.completion->failed(message);
}

Engine::Engine(ProcessGroup group, const Options& options)
    : scheme_(options.scheme), rank_(options.rank >= 0 ? options.rank : group->getRank()) {
  check_options(options);
  std::unique_ptr<Board> board = store_board(options.store ? options.store : group->getStore());
  transport_ = std::make_unique<Lanes>(
      LaneOptions{std::move(group), mode_of(options.transport), options.timeout, options.node});
  mode_ = transport_->mode();
  const std::optional<DType> wire_dtype = wire_dtype_of(options.wire_dtype);
  planner_ = std::make_unique<Planner>(options.chunks, shared_seed(*transport_), nodes(),
                                       transport_->traits(), wire_dtype);
  // Alone there is nothing to choose, and a sum of a node cannot be looked at in advance.
  fixed_ = {&find_scheme(options.scheme == kAuto ? "balanced_parallelism" : options.scheme),
            options.pack_values.value_or(false)};
  if (options.scheme == kAuto && nodes() > 1 && !options.node)
    chooser_ = std::make_unique<Chooser>(
        ChooserOptions{options.profile_iterations,
                       options.reprofile_every,
                       options.deterministic,
                       {options.pack_values, wire_dtype, options.dgc.has_value()}},
        *transport_,
        [this](size_t bytes) {
          return transport_->at(c10::DeviceType::CPU).device().allocate(bytes);
        },
        seconds_now);
  if (options.dgc) dgc_ = std::make_unique<DgcCompression>(*options.dgc, options.tensor_parallel);
  if (board && ranks() > 1)
    watch_ =
        std::make_unique<Watch>(std::move(board), rank_, ranks(), [this] { transport_->fail(); });
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  close();
}

void Engine::submit(Request request) {
  auto job = std::make_unique<Job>(*this, std::move(request));
  ++unfinished_;
  if (queue_.push(std::move(job))) return;
  --unfinished_;
  throw InvalidArgument("zensync: this engine is closed: make another State");
}

bool Engine::on_own_thread() const {
  return engine_of_this_thread == this;
}

void Engine::close() {
  const std::lock_guard lock(closing_);
  if (!thread_.joinable()) return;
  if (unfinished_ > 0) transport_->fail();
  queue_.close();
  thread_.join();
  watch_.reset();
  transport_.reset();
}

void Engine::run() {
  pthread_setname_np(pthread_self(), "zensync");
  engine_of_this_thread = this;
  Pipeline pipeline(*transport_, transport_->node(), rank_, watch_.get());
  for (;;) {
    // With a bucket in flight there is something better to do than to wait for the next.
    auto job = next_job(pipeline.in_flight() > 0);
    if (job) {
      pipeline.start(std::move(*job));
      if (pipeline.in_flight() < kInFlight) continue;
    }
    if (pipeline.in_flight() == 0) break;
    pipeline.finish_oldest();
  }
  for (const auto& job : held_) job->failed("zensync: the engine was closed");
}

// The norm that clipping compares with is that of the whole gradient. So with clipping an
// iteration's buckets are held until the last one has come; those on a GPU are refused at once.
std::optional<std::unique_ptr<Engine::Job>> Engine::next_job(bool busy) {
  for (;;) {
    if (!released_.empty()) {
      auto job = std::move(released_.front());
      released_.pop_front();
      return job;
    }
    auto job = busy ? queue_.try_take() : queue_.take();
    if (!job || !dgc_ || !dgc_->clips() || !(*job)->is_on_cpu()) return job;
    hold(std::move(*job));
  }
}

void Engine::hold(std::unique_ptr<Job> job) {
  if (job->is_compressed()) dgc_->add_squares(job->gradient(), job->dgc());
  const bool last = job->ends_iteration();
  held_.push_back(std::move(job));
  if (last) released_.swap(held_);
}

}  // namespace zen
