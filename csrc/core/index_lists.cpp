#include "core/index_lists.h"

namespace zen {

template <class Index>
IndexLists<Index>::IndexLists(uint64_t numel, PartitionHash h0)
    : first_(static_cast<size_t>(h0.n()) + 1, 0), indices_(numel) {
  for (uint64_t index = 0; index < numel; ++index) ++first_[h0(static_cast<Index>(index)) + 1];
  for (size_t j = 1; j < first_.size(); ++j) first_[j] += first_[j - 1];
  std::vector<uint64_t> next(first_.begin(), first_.end() - 1);
  for (uint64_t index = 0; index < numel; ++index)
    indices_[next[h0(static_cast<Index>(index))]++] = static_cast<Index>(index);
}

template class IndexLists<uint32_t>;
template class IndexLists<uint64_t>;

}  // namespace zen
