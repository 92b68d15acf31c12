#include "torch/dgc_pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "torch/c10d_transport.h"
#include "torch/compat.h"

namespace zen {

DgcSamples GroupPool::gather(DgcSamples samples) {
  at::Tensor shape = at::empty({2}, at::kLong);
  shape.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(samples.stride);
  shape.mutable_data_ptr<int64_t>()[1] = static_cast<int64_t>(samples.now.size());
  const at::Tensor shapes = all_gather(shape);
  const int64_t* of_rank = shapes.const_data_ptr<int64_t>();
  int64_t stride = 1, most = 0;
  for (int rank = 0; rank < group_->getSize(); ++rank) {
    stride = std::max(stride, of_rank[2 * rank]);
    most = std::max(most, of_rank[2 * rank + 1]);
  }
  // Equal lengths, as an all-gather wants them; what a rank lacks is not looked at.
  at::Tensor mine = at::zeros({2 * most}, at::kInt);
  auto* magnitudes = reinterpret_cast<uint32_t*>(mine.mutable_data_ptr<int32_t>());
  std::copy(samples.now.begin(), samples.now.end(), magnitudes);
  std::copy(samples.next.begin(), samples.next.end(), magnitudes + most);
  const at::Tensor all = all_gather(mine);
  DgcSamples pooled{{}, {}, static_cast<uint64_t>(stride)};
  for (int rank = 0; rank < group_->getSize(); ++rank) {
    const auto* now =
        reinterpret_cast<const uint32_t*>(all.const_data_ptr<int32_t>()) + 2 * most * rank;
    const int64_t count = of_rank[2 * rank + 1];
    DgcSamples of_one{{now, now + count},
                      {now + most, now + most + count},
                      static_cast<uint64_t>(of_rank[2 * rank])};
    of_one.thin_to(pooled.stride);
    pooled.now.insert(pooled.now.end(), of_one.now.begin(), of_one.now.end());
    pooled.next.insert(pooled.next.end(), of_one.next.begin(), of_one.next.end());
  }
  return pooled;
}

double GroupPool::sum(double value) {
  at::Tensor mine = at::empty({1}, at::kDouble);
  *mine.mutable_data_ptr<double>() = value;
  const at::Tensor all = all_gather(mine);
  double sum = 0;
  for (int rank = 0; rank < group_->getSize(); ++rank) sum += all.const_data_ptr<double>()[rank];
  return sum;
}

at::Tensor GroupPool::all_gather(at::Tensor mine) {
  at::Tensor all = at::empty({mine.numel() * group_->getSize()}, mine.options());
  if (mine.numel() == 0) return all;
  try {
    compat::all_gather(*group_, all, mine)->wait();
  } catch (...) {
    rethrow_as_transport_error("gathering DGC's samples over tp_group");
  }
  return all;
}

}  // namespace zen
