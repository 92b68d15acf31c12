// What differs between the supported versions of torch, 2.11 to 2.14. Features are detected rather
// than versions compared: a new name is used wherever the header has it.
#pragma once

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace zen::compat {

// Splits are taken by value because gloo's backend moves from the caller's vectors.
template <class Group>
c10::intrusive_ptr<c10d::Work> all_to_all(Group& group, at::Tensor& out, at::Tensor& in,
                                          std::vector<int64_t> out_splits,
                                          std::vector<int64_t> in_splits) {
  if constexpr (requires { group.all_to_all_single(out, in, out_splits, in_splits); }) {
    return group.all_to_all_single(out, in, out_splits, in_splits);
  } else {
    return group.alltoall_base(out, in, out_splits, in_splits);
  }
}

template <class Group>
c10::intrusive_ptr<c10d::Work> all_gather(Group& group, at::Tensor& out, at::Tensor& in) {
  if constexpr (requires { group.all_gather_single(out, in); }) {
    return group.all_gather_single(out, in);
  } else {
    return group._allgather_base(out, in);
  }
}

}  // namespace zen::compat
