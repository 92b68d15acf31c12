// DGC for single tensors, as operators of torch: zensync::dgc_compress and zensync::dgc_decompress.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>

#include "core/bits.h"
#include "core/cpu_device.h"
#include "core/dgc.h"
#include "core/error.h"
#include "torch/tensor_dtype.h"

namespace zen {

namespace {

DType dtype_of(const at::Tensor& tensor) {
  const std::optional<DType> dtype = scheme_dtype(tensor);
  TORCH_CHECK_VALUE(dtype, "DGC compresses float32, float16 and bfloat16, and the tensor is ",
                    dtype_name(tensor), ": convert it");
  return *dtype;
}

Gradient view(const at::Tensor& flat) {
  return {{static_cast<std::byte*>(flat.data_ptr()), flat.nbytes(), nullptr},
          dtype_of(flat),
          static_cast<uint64_t>(flat.numel())};
}

void check_residual(const at::Tensor& residual, const at::Tensor& input) {
  TORCH_CHECK_VALUE(
      residual.sizes() == input.sizes() && residual.is_contiguous() &&
          (residual.scalar_type() == at::kFloat || residual.scalar_type() == input.scalar_type()),
      "the residual must be contiguous, of the tensor's shape ", input.sizes(),
      " and of type float32 or the tensor's: it has shape ", residual.sizes(), " and type ",
      dtype_name(residual));
}

// Positions in the flat gradient of what one owner of everything lists.
at::Tensor indices_of(const ShardSelection& listed) {
  at::Tensor indices = at::empty({static_cast<int64_t>(listed.count)}, at::kLong);
  int64_t* out = indices.mutable_data_ptr<int64_t>();
  const uint64_t* mask = listed.mask_list();
  for_each_bit({listed.presence_bits(), listed.shard.presence_words()}, [&](uint64_t slot) {
    for (uint64_t rest = *mask++; rest != 0; rest &= rest - 1)
      *out++ = static_cast<int64_t>(slot * kWordElems) + std::countr_zero(rest);
  });
  return indices;
}

std::tuple<at::Tensor, at::Tensor> dgc_compress(const at::Tensor& input,
                                                const std::optional<at::Tensor>& residual,
                                                double density, double sample_ratio, int64_t seed) {
  // The pass leaves zeros behind, and the caller's tensor is not ours.
  const at::Tensor flat = input.contiguous().view(-1).clone();
  Gradient gradient = view(flat);
  DgcMemory memory;
  if (residual) {
    check_residual(*residual, input);
    memory.residual = static_cast<std::byte*>(residual->data_ptr());
    memory.dtype = dtype_of(*residual);
  }
  try {
    DgcOptions options;
    options.density = density;
    options.sample_ratio = sample_ratio;
    options.per_bucket = true;
    options.seed = static_cast<uint32_t>(seed);
    Dgc dgc(options, nullptr);
    CpuDevice device;
    gradient.dgc =
        &dgc.begin_bucket(device, gradient, memory, 1, 1, {{0, gradient.numel, 0, true}});
    const auto everything = Placement::make(PlacementKind::whole, gradient.numel, 1, 0);
    const Selection selection = device.select(gradient, *everything, everything->all());
    const at::Tensor values =
        at::empty({static_cast<int64_t>(selection[0].count)}, input.options());
    if (values.numel() > 0)
      std::memcpy(values.data_ptr(), selection[0].message.data + kHeaderBytes, values.nbytes());
    return {indices_of(selection[0]), values};
  } catch (const InvalidArgument& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

at::Tensor dgc_decompress(const at::Tensor& indices, const at::Tensor& values,
                          at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(
      indices.scalar_type() == at::kLong && indices.dim() == 1 && indices.sizes() == values.sizes(),
      "indices and values must be one-dimensional and equally long, the indices "
      "int64: they have shapes ",
      indices.sizes(), " and ", values.sizes());
  at::Tensor dense = at::zeros(shape, values.options());
  const at::Tensor from = values.contiguous(), where = indices.contiguous();
  const size_t size = dense.element_size();
  auto* elements = static_cast<std::byte*>(dense.data_ptr());
  const auto* value = static_cast<const std::byte*>(from.const_data_ptr());
  const int64_t* index = where.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < where.numel(); ++i, value += size) {
    TORCH_CHECK_INDEX(index[i] >= 0 && index[i] < dense.numel(), "index ", index[i],
                      " lies outside of a tensor of ", dense.numel(), " elements");
    std::memcpy(elements + static_cast<size_t>(index[i]) * size, value, size);
  }
  return dense;
}

}  // namespace

TORCH_LIBRARY(zensync, library) {
  library.def(
      "dgc_compress(Tensor input, Tensor(a!)? residual, float density, float sample_ratio, "
      "int seed) -> (Tensor indices, Tensor values)");
  library.def("dgc_decompress(Tensor indices, Tensor values, SymInt[] shape) -> Tensor");
}

TORCH_LIBRARY_IMPL(zensync, CPU, library) {
  library.impl("dgc_compress", dgc_compress);
  library.impl("dgc_decompress", dgc_decompress);
}

}  // namespace zen
