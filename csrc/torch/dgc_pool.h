// Samples of the ranks that hold parts of one model, gathered over a group of torch.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "core/dgc.h"

namespace zen {

// Every call is a collective over the group, which must be used by nobody else. Throws
// TransportError if a rank does not answer.
class GroupPool final : public DgcPool {
 public:
  explicit GroupPool(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  DgcSamples gather(DgcSamples samples) override;
  double sum(double value) override;

 private:
  at::Tensor all_gather(at::Tensor mine);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace zen
