// The Python module zensync._C. Its types are described in python/zensync/_C.pyi.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <chrono>

#include "core/cpu_features.h"
#include "core/error.h"
#include "torch/advice.h"
#include "torch/python_engine.h"

namespace zen {

namespace {

namespace py = pybind11;

Reduce reduce_of(const std::string& op) {
  if (op == "mean") return Reduce::mean;
  if (op == "sum") return Reduce::sum;
  throw InvalidArgument("unknown op '" + op + "': choose mean or sum");
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

py::dict to_python(const StageSeconds& seconds) {
  py::dict result;
  for (int stage = 0; stage < kStages; ++stage)
    result[name_of(static_cast<Stage>(stage))] = seconds[stage];
  return result;
}

py::object share(uint64_t part, const BucketStats& bucket) {
  if (!bucket.counts_nonzeros || bucket.numel == 0) return py::none();
  return py::float_(static_cast<double>(part) / static_cast<double>(bucket.numel));
}

py::dict to_python(const BucketStats& bucket) {
  py::dict result;
  result["bucket"] = bucket.index;
  result["dtype"] = bucket.dtype;
  result["scheme"] = bucket.scheme;
  result["packed"] = bucket.packed;
  result["numel"] = bucket.numel;
  result["chunks"] = bucket.chunks;
  result["bytes_out"] = bucket.traffic.bytes_out;
  result["bytes_in"] = bucket.traffic.bytes_in;
  result["dense_bytes"] = bucket.dense_bytes;
  result["density_before"] = share(bucket.report.nonzeros, bucket);
  result["density_after"] = share(bucket.report.nonzeros_summed, bucket);
  result["imbalance"] =
      bucket.counts_nonzeros ? py::object(py::float_(bucket.report.imbalance)) : py::none();
  result["seconds"] = to_python(bucket.seconds);
  return result;
}

py::dict to_python(const Totals& totals) {
  py::dict result;
  result["buckets"] = totals.buckets;
  result["bytes_out"] = totals.traffic.bytes_out;
  result["bytes_in"] = totals.traffic.bytes_in;
  result["dense_bytes"] = totals.dense_bytes;
  result["seconds"] = to_python(totals.seconds);
  return result;
}

py::dict to_python(const Statistics::Snapshot& snapshot) {
  Totals last;
  py::list buckets;
  for (const BucketStats& bucket : snapshot.buckets) {
    last.add(bucket);
    buckets.append(to_python(bucket));
  }
  py::dict result;
  result["iterations"] = snapshot.total.iterations;
  result["total"] = to_python(snapshot.total);
  result["last"] = to_python(last);
  result["buckets"] = buckets;
  return result;
}

py::dict to_python(const CandidateReport& candidate) {
  py::dict result;
  result["scheme"] = std::string(candidate.choice.scheme->name);
  result["packed"] = candidate.choice.pack_values;
  result["bytes"] = candidate.bytes;
  result["predicted"] = candidate.predicted.total;
  result["predicted_latency"] = candidate.predicted.latency;
  result["predicted_wire"] = candidate.predicted.wire;
  result["predicted_work"] = candidate.predicted.work;
  result["measured"] =
      candidate.measured > 0 ? py::object(py::float_(candidate.measured)) : py::none();
  result["expected"] = candidate.expected;
  return result;
}

py::dict to_python(const BucketReport& bucket) {
  py::dict result;
  result["bucket"] = bucket.key.index;
  result["dtype"] = name_of(bucket.key.dtype);
  result["numel"] = bucket.key.numel;
  result["reason"] = bucket.reason;
  result["profiling"] = bucket.profiling;
  result["turns"] = bucket.turns;
  result["profiles"] = bucket.profiles;
  result["ranks"] = bucket.ranks;
  result["density_before"] = bucket.density;
  result["density_after"] = bucket.density_of_sum;
  result["densification"] = bucket.densification;
  result["skew"] = bucket.skew;
  result["packed_share"] = bucket.packed_share;
  result["round_seconds"] = bucket.rates.round + bucket.rates.message * (bucket.ranks - 1);
  result["link_bytes_per_second"] = 1 / bucket.rates.byte;
  result["chosen"] = bucket.chosen;
  py::list candidates;
  for (const CandidateReport& candidate : bucket.candidates)
    candidates.append(to_python(candidate));
  result["candidates"] = candidates;
  return result;
}

// Of scheme auto; otherwise empty.
py::list choices(PythonEngine& engine) {
  py::list result;
  if (engine.chooser() == nullptr) return result;
  for (const BucketReport& bucket : engine.chooser()->reports()) result.append(to_python(bucket));
  return result;
}

// Bucket, dtype, elements, scheme and whether packed, of decisions for good.
using Pinned = std::vector<std::tuple<int, std::string, uint64_t, std::string, bool>>;

Pinned pinned(PythonEngine& engine) {
  Pinned result;
  if (engine.chooser() == nullptr) return result;
  for (const auto& [key, choice] : engine.chooser()->pinned())
    result.emplace_back(key.index, name_of(key.dtype), key.numel, std::string(choice.scheme->name),
                        choice.pack_values);
  return result;
}

void pin(PythonEngine& engine, const Pinned& decisions) {
  if (engine.chooser() == nullptr) return;
  for (const auto& [index, dtype, numel, scheme, packed] : decisions)
    for (const DType known : {DType::f32, DType::f16, DType::bf16})
      if (dtype == name_of(known))
        engine.chooser()->pin({index, known, numel}, {&find_scheme(scheme), packed});
}

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const Scheme& scheme : schemes()) names.emplace_back(scheme.name);
  return names;
}

// The dictionary is that of python/zensync/dgc.py.
std::optional<DgcOptions> dgc_options(const std::optional<py::dict>& given) {
  if (!given) return std::nullopt;
  const py::dict& options = *given;
  return DgcOptions{.density = options["density"].cast<double>(),
                    .rule = {.momentum = options["momentum"].cast<float>(),
                             .nesterov = options["nesterov"].cast<bool>(),
                             .momentum_masking = options["momentum_masking"].cast<bool>()},
                    .clip_norm = options["clip_norm"].cast<double>(),
                    .warmup = options["warmup"].cast<uint64_t>(),
                    .warmup_stages = options["warmup_stages"].cast<uint64_t>(),
                    .sample_ratio = options["sample_ratio"].cast<double>(),
                    .per_bucket = options["per_bucket"].cast<bool>(),
                    .seed = options["seed"].cast<uint32_t>()};
}

// Elements, key and whether this rank counts them, of the bucket's parameters in order.
using Segments = std::vector<std::tuple<uint64_t, uint32_t, bool>>;

PythonEngine::Future hook(PythonEngine& engine, c10d::GradBucket& bucket) {
  return engine.hook(bucket, std::nullopt);
}

PythonEngine::Future compressed_hook(PythonEngine& engine, c10d::GradBucket& bucket,
                                     const std::optional<at::Tensor>& residual,
                                     const std::optional<at::Tensor>& momentum, float scale,
                                     const Segments& segments) {
  DgcRequest request{residual.value_or(at::Tensor()), momentum.value_or(at::Tensor()), scale, {}};
  uint64_t begin = 0;
  for (const auto& [numel, key, counted] : segments) {
    request.segments.push_back({begin, begin + numel, key, counted});
    begin += numel;
  }
  return engine.hook(bucket, std::move(request));
}

py::dict dgc_state(PythonEngine& engine) {
  const DgcState state = engine.dgc()->state();
  py::dict result;
  result["iteration"] = state.iteration;
  result["threshold"] = state.threshold;
  result["guess"] = state.guess;
  result["correction"] = state.correction;
  result["excess"] = state.excess;
  result["stride"] = state.stride;
  result["elements"] = state.elements;
  return result;
}

// What is missing starts anew.
void restore_dgc(PythonEngine& engine, const py::dict& state) {
  DgcState restored;
  const auto set = [&](const char* name, auto& field) {
    if (state.contains(name)) field = state[name].cast<std::decay_t<decltype(field)>>();
  };
  set("iteration", restored.iteration);
  set("threshold", restored.threshold);
  set("guess", restored.guess);
  set("correction", restored.correction);
  set("excess", restored.excess);
  set("stride", restored.stride);
  set("elements", restored.elements);
  engine.dgc()->restore(restored);
}

py::dict build_info() {
  py::dict result;
  result["torch"] = TORCH_VERSION;
  result["compiler"] = __VERSION__;
  result["cxx_standard"] = __cplusplus;
  result["cuda"] = built_for_cuda();
  result["isa"] = name_of(preferred_isa());
  return result;
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const InvalidArgument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  }
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  py::register_local_exception_translator(translate);
  py::class_<PythonEngine>(module, "Engine")
      .def(py::init([](ProcessGroup group, std::string scheme, int chunks,
                       std::optional<bool> pack_values, std::string wire_dtype,
                       std::string transport, double timeout, const std::optional<py::dict>& dgc,
                       std::optional<ProcessGroup> tp_group, int profile_iterations,
                       int reprofile_every, bool deterministic,
                       std::optional<ProcessGroup> node_group, int rank,
                       std::optional<Store> store) {
             return std::make_unique<PythonEngine>(
                 std::move(group),
                 Options{std::move(scheme), chunks, pack_values, std::move(wire_dtype),
                         std::move(transport), milliseconds_of(timeout), dgc_options(dgc),
                         tp_group.value_or(ProcessGroup()), profile_iterations, reprofile_every,
                         deterministic, node_group.value_or(ProcessGroup()), rank,
                         store.value_or(Store())});
           }),
           py::arg("group"), py::kw_only(), py::arg("scheme"), py::arg("chunks"),
           py::arg("pack_values"), py::arg("wire_dtype"), py::arg("transport"), py::arg("timeout"),
           py::arg("dgc") = py::none(), py::arg("tp_group") = py::none(),
           py::arg("profile_iterations") = ChooserOptions{}.profile_iterations,
           py::arg("reprofile_every") = ChooserOptions{}.reprofile_every,
           py::arg("deterministic") = false, py::arg("node_group") = py::none(),
           py::arg("rank") = -1, py::arg("store") = py::none())
      .def("hook", &hook, py::arg("bucket"))
      .def("compressed_hook", &compressed_hook, py::arg("bucket"), py::kw_only(),
           py::arg("residual"), py::arg("momentum"), py::arg("scale"), py::arg("segments"))
      .def("dgc_state", &dgc_state)
      .def("restore_dgc", &restore_dgc, py::arg("state"))
      .def("choices", &choices)
      .def("pinned", &pinned)
      .def("pin", &pin, py::arg("decisions"))
      .def(
          "all_reduce",
          [](PythonEngine& engine, const at::Tensor& tensor, const std::string& op) {
            return engine.all_reduce(tensor, reduce_of(op));
          },
          py::arg("tensor"), py::kw_only(), py::arg("op"))
      .def("close", &PythonEngine::close)
      .def_property_readonly("on_own_thread", &PythonEngine::on_own_thread)
      .def("statistics", [](const PythonEngine& engine) { return to_python(engine.statistics()); })
      .def_property_readonly("rank", &PythonEngine::rank)
      .def_property_readonly("scheme", &PythonEngine::scheme)
      .def_property_readonly("transport", &PythonEngine::transport);
  module.def("schemes", scheme_names);
  module.def(
      "check_options",
      [](std::string scheme, std::optional<bool> pack_values, std::string wire_dtype) {
        Options options;
        options.scheme = std::move(scheme);
        options.pack_values = pack_values;
        options.wire_dtype = std::move(wire_dtype);
        check_options(options);
      },
      py::kw_only(), py::arg("scheme"), py::arg("pack_values"), py::arg("wire_dtype"));
  module.def("build_info", build_info);
  add_advice(module);
  module.attr("MAX_CHUNKS") = kMaxChunks;
  module.attr("AUTO") = kAuto;
  module.attr("PROFILE_ITERATIONS") = ChooserOptions{}.profile_iterations;
  module.attr("REPROFILE_EVERY") = ChooserOptions{}.reprofile_every;
}

}  // namespace zen
