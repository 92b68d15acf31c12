#include "core/narrow.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/merge_kernels.h"

namespace zen {

namespace {

constexpr uint64_t kBlockValues = 1024;

}  // namespace

// Block by block through a copy, because the narrow values overwrite the wide ones. Dividing by one
// is how merge() rounds.
void narrow_values(ShardSelection& selection, DType dtype, Isa isa) {
  if (selection.dtype == dtype) return;
  if (selection.dtype != DType::f32)
    throw InvalidArgument(std::string("only float32 values can be narrowed, not ") +
                          name_of(selection.dtype));
  const DivideBlock round =
      (isa == Isa::avx2 ? merge_kernels_avx2(dtype) : merge_kernels_scalar(dtype)).divide;
  const std::byte* wide = selection.message.data + kHeaderBytes;
  std::byte* narrow = selection.message.data + kHeaderBytes;
  for (uint64_t left = selection.count; left > 0;) {
    alignas(64) float block[kBlockValues];
    const uint64_t count = std::min(left, kBlockValues);
    std::memcpy(block, wide, count * sizeof(float));
    narrow = round(block, count, 1, narrow);
    wide += count * sizeof(float);
    left -= count;
  }
  selection.dtype = dtype;
}

void widen_values(OpenMessage& message, const Allocate& allocate) {
  if (message.header.dtype == DType::f32) return;
  constexpr size_t kVectorRoom = 128;
  Buffer wide = allocate(message.header.count * sizeof(float) + kVectorRoom);
  with_type(message.header.dtype, [&]<class T>(T) {
    const T* values = reinterpret_cast<const T*>(message.values);
    auto* out = reinterpret_cast<float*>(wide.data);
    for (uint64_t i = 0; i < message.header.count; ++i) out[i] = to_float(values[i]);
  });
  message.header.dtype = DType::f32;
  message.converted = wide;
  message.values = wide.data;
}

}  // namespace zen
