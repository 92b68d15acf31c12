#include "torch/advice.h"

#include <pybind11/stl.h>

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/cost_model.h"
#include "core/error.h"
#include "core/look.h"
#include "core/sparsity.h"
#include "schemes/exchange.h"
#include "schemes/planner.h"
#include "torch/tensor_dtype.h"

namespace zen {

namespace {

namespace py = pybind11;

constexpr size_t kSampledBlocks = 256;  // of a look: enough for overlaps within a few percent

DType known_dtype(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (name == name_of(dtype)) return dtype;
  throw InvalidArgument("dtype " + name + " is not predicted: choose float32, float16 or bfloat16");
}

py::dict to_python(const Look& look) {
  py::list bins, blocks, masks;
  for (const Counts& bin : look.bins)
    bins.append(py::make_tuple(bin.elements, bin.words, bin.full_words, bin.blocks));
  for (const SampledBlock& block : look.sample) {
    blocks.append(block.block);
    masks.append(block.masks);
  }
  py::dict result;
  result["numel"] = look.numel;
  result["bins"] = bins;
  result["blocks"] = blocks;
  result["masks"] = masks;
  result["threshold"] = look.threshold;
  result["packed_share"] = look.packed_share;
  result["sampled_values"] = look.sampled_values;
  return result;
}

Look to_look(const py::dict& given) {
  using Bin = std::array<double, 4>;
  Look look;
  look.numel = given["numel"].cast<uint64_t>();
  const auto bins = given["bins"].cast<std::vector<Bin>>();
  const auto blocks = given["blocks"].cast<std::vector<uint32_t>>();
  const auto masks = given["masks"].cast<std::vector<std::array<uint64_t, kBlockWords>>>();
  if (bins.size() != kBins || blocks.size() != masks.size())
    throw InvalidArgument("a look has " + std::to_string(bins.size()) + " bins, " +
                          std::to_string(blocks.size()) + " blocks and " +
                          std::to_string(masks.size()) + " masks: it is not whole");
  for (int bin = 0; bin < kBins; ++bin)
    look.bins[bin] = {bins[bin][0], bins[bin][1], bins[bin][2], bins[bin][3]};
  for (size_t i = 0; i < blocks.size(); ++i) look.sample.push_back({blocks[i], masks[i]});
  look.threshold = given["threshold"].cast<uint64_t>();
  look.packed_share = given["packed_share"].cast<double>();
  look.sampled_values = given["sampled_values"].cast<uint64_t>();
  return look;
}

std::vector<Look> to_looks(const std::vector<py::dict>& given) {
  std::vector<Look> looks;
  for (const py::dict& one : given) {
    looks.push_back(to_look(one));
    if (looks.back().numel != looks[0].numel)
      throw InvalidArgument("looks at gradients of " + std::to_string(looks[0].numel) + " and " +
                            std::to_string(looks.back().numel) + " elements");
  }
  if (looks.empty()) throw InvalidArgument("there are no looks");
  return looks;
}

py::dict look(const at::Tensor& gradient) {
  const auto dtype = scheme_dtype(gradient);
  if (!dtype || !gradient.is_cpu() || !gradient.is_contiguous())
    throw InvalidArgument(
        "only contiguous float32, float16 and bfloat16 CPU tensors can be looked "
        "at; this one is of " +
        dtype_name(gradient));
  Gradient seen;
  seen.data = Buffer{static_cast<std::byte*>(gradient.data_ptr()),
                     static_cast<size_t>(gradient.nbytes()), nullptr};
  seen.dtype = *dtype;
  seen.numel = static_cast<uint64_t>(gradient.numel());
  return to_python(look_at(seen, /*thorough=*/true, kSampledBlocks));
}

// The gradient of a node: what its ranks list together, bin by bin and in the blocks that all of
// them have sampled.
Look look_together(const std::vector<Look>& looks) {
  const Sparsity sparsity(looks);
  Look result;
  result.numel = looks[0].numel;
  result.threshold = looks[0].threshold;
  result.packed_share = sparsity.packed_share();
  for (const Look& one : looks) {
    result.threshold = std::min(result.threshold, one.threshold);
    result.sampled_values += one.sampled_values;
  }
  for (int bin = 0; bin < kBins; ++bin)
    result.bins[bin] =
        sparsity.listed(0, sparsity.ranks(), {bin / double{kBins}, (bin + 1) / double{kBins}});
  std::map<uint32_t, SampledBlock> by_hash;
  for (const Look& one : looks)
    for (const SampledBlock& block : one.sample) {
      const uint32_t hash = hash_block(block.block);
      if (hash >= result.threshold) continue;
      SampledBlock& sum = by_hash[hash];
      sum.block = block.block;
      for (size_t i = 0; i < kBlockWords; ++i) sum.masks[i] |= block.masks[i];
    }
  for (const auto& [hash, block] : by_hash) result.sample.push_back(block);
  return result;
}

// The standard rates, but for the link's and for work that takes `work` times as long.
Rates rates_of(double byte, double ring_byte, double work) {
  Rates rates;
  rates.byte = byte;
  rates.ring_byte = ring_byte;
  for (double* rate : {&rates.scanned, &rates.listed, &rates.merged, &rates.written, &rates.packed,
                       &rates.unpacked})
    *rate *= work;
  return rates;
}

py::dict predicted(const Sparsity& sparsity, const std::string& scheme_name,
                   const std::string& dtype, int chunks, bool pack_values, double byte,
                   double ring_byte, double work) {
  const Scheme& scheme = find_scheme(scheme_name);
  if (chunks < 1 || chunks > kMaxChunks)
    throw InvalidArgument("chunks is " + std::to_string(chunks) + ": choose 1 to " +
                          std::to_string(kMaxChunks));
  check_options(scheme, pack_values, std::nullopt);
  const Shape shape = shape_of(scheme);
  const DType known = known_dtype(dtype);
  const Prediction prediction = predict(shape, {known, known, chunks, pack_values}, sparsity);
  const Seconds seconds = seconds_of(prediction, rates_of(byte, ring_byte, work), shape, chunks);
  py::dict result;
  result["bytes"] = prediction.busiest_bytes();
  result["latency"] = seconds.latency;
  result["wire"] = seconds.wire;
  result["work"] = seconds.work;
  result["seconds"] = seconds.total;
  return result;
}

// That a State over gloo cuts a gradient of so many bytes into when it is not told.
int default_chunks(uint64_t bytes) {
  constexpr Traits kGloo = {.ordered = false, .exact_sizes = false, .max_chunks = 4};
  return Planner(0, 0, 1, kGloo).chunks(bytes);
}

}  // namespace

void add_advice(py::module_& module) {
  module.def("look", look, py::arg("gradient"));
  module.def(
      "together",
      [](const std::vector<py::dict>& looks) { return to_python(look_together(to_looks(looks))); },
      py::arg("looks"));
  module.def("default_chunks", default_chunks, py::arg("bytes"));
  py::class_<Sparsity>(module, "Sparsity")
      .def(py::init([](const std::vector<py::dict>& looks) { return Sparsity(to_looks(looks)); }),
           py::arg("looks"))
      .def_property_readonly("ranks", &Sparsity::ranks)
      .def_property_readonly("numel", &Sparsity::numel)
      .def("density", &Sparsity::density)
      .def("density_of_sum", &Sparsity::density_of_sum)
      .def("densification", &Sparsity::densification, py::arg("ranks"))
      .def("skew", &Sparsity::skew)
      .def("packed_share", &Sparsity::packed_share)
      .def("predict", predicted, py::arg("scheme"), py::kw_only(), py::arg("dtype"),
           py::arg("chunks"), py::arg("pack_values"), py::arg("byte"), py::arg("ring_byte"),
           py::arg("work"));
}

}  // namespace zen
