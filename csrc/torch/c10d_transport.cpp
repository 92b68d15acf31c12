#include "torch/c10d_transport.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "core/error.h"
#include "torch/compat.h"
#include "torch/tag.h"

namespace zen {

namespace {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return at::kHalf;
    case DType::bf16:
      return at::kBFloat16;
    case DType::f32:
      break;
  }
  return at::kFloat;
}

std::string list_descriptions(const at::Tensor& all, int ranks) {
  std::map<std::string, std::string> ranks_of;
  const char* text = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
  for (int rank = 0; rank < ranks; ++rank, text += Transport::kDescriptionBytes) {
    std::string& list = ranks_of[{text, strnlen(text, Transport::kDescriptionBytes)}];
    list += (list.empty() ? "rank " : ", ") + std::to_string(rank);
  }
  std::string result;
  for (const auto& [description, list] : ranks_of)
    result += (result.empty() ? "" : "; ") + list + ": " + description;
  return result;
}

}  // namespace

const char* name_of(Mode mode) {
  return mode == Mode::capacity ? "capacity" : "exact";
}

void rethrow_as_transport_error(const std::string& what) {
  try {
    throw;
  } catch (const c10::Error& error) {
    throw TransportError(what + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw TransportError(what + ": " + error.what());
  }
}

std::unique_ptr<C10dTransport> C10dTransport::make(ProcessGroup group, Mode mode, Memory memory) {
  return mode == Mode::capacity ? make_capacity_transport(std::move(group), std::move(memory))
                                : make_exact_transport(std::move(group), std::move(memory));
}

std::optional<std::string> C10dTransport::backend_name(const ProcessGroup& group,
                                                       c10::DeviceType type) {
  try {
    return group->getBackend(type)->getBackendName();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Mode C10dTransport::best_mode(const ProcessGroup& group, c10::DeviceType type) {
  const std::optional<std::string> name = backend_name(group, type);
  if (!name)
    throw InvalidArgument(
        "the process group does not move " + c10::DeviceTypeName(type) +
        " tensors: use init_process_group('cpu:gloo,cuda:nccl'), or give zensync a gloo group, "
        "new_group(backend='gloo')");
  return *name == "gloo" ? Mode::capacity : Mode::exact;
}

at::Tensor C10dTransport::tensor_of(const Buffer& buffer) const {
  return at::from_blob(
      buffer.data, {static_cast<int64_t>(buffer.bytes)}, [owner = buffer.owner](void*) {},
      at::TensorOptions(at::kByte).device(memory_.device), memory_.device);
}

// From pinned memory, because a copy from any other would wait for all that the stream holds.
at::Tensor C10dTransport::to_memory(const at::Tensor& tensor) const {
  if (memory_.device.is_cpu()) return tensor;
  return tensor.pin_memory().to(memory_.device, /*non_blocking=*/true);
}

at::Tensor C10dTransport::to_host(const at::Tensor& tensor) const {
  if (memory_.settle) memory_.settle();
  return tensor.cpu();
}

void C10dTransport::all_reduce(const Buffer& data, DType dtype, Reduce reduce) {
  all_reduce(tensor_of(data).view(scalar_type(dtype)), reduce);
}

void C10dTransport::all_reduce(at::Tensor tensor, Reduce reduce) {
  guarded("all-reduce with all ranks", [&] {
    std::vector<at::Tensor> tensors{tensor};
    group_->allreduce(tensors)->wait();
    if (memory_.settle) memory_.settle();
  });
  // Divided afterwards, so that whole numbers whose mean is whole stay exact.
  if (reduce == Reduce::mean) tensor.div_(size());
  const uint64_t bytes = ring_all_reduce_bytes(tensor.nbytes(), size());
  traffic_.bytes_out += bytes;
  traffic_.bytes_in += bytes;
}

uint32_t C10dTransport::broadcast(uint32_t value) {
  at::Tensor mine = at::empty({1}, at::kLong);
  *mine.mutable_data_ptr<int64_t>() = value;
  std::vector<at::Tensor> tensors{to_memory(mine)};
  const at::Tensor shared = guarded("waiting for rank 0", [&] {
    group_->broadcast(tensors)->wait();
    return to_host(tensors[0]);
  });
  return static_cast<uint32_t>(*shared.const_data_ptr<int64_t>());
}

void C10dTransport::agree(uint64_t fingerprint, const std::string& description) {
  auto gather = [&](const at::Tensor& own) {
    at::Tensor mine = to_memory(own);
    at::Tensor all = at::empty({mine.numel() * size()}, mine.options());
    return guarded("comparing notes with all ranks", [&] {
      compat::all_gather(*group_, all, mine)->wait();
      return to_host(all);
    });
  };
  at::Tensor mine = at::empty({1}, at::kLong);
  *mine.mutable_data_ptr<int64_t>() = static_cast<int64_t>(fingerprint);
  const at::Tensor all = gather(mine);
  const int64_t* first = all.const_data_ptr<int64_t>();
  if (std::all_of(first, first + size(), [&](int64_t other) { return other == *first; })) return;

  at::Tensor text = at::zeros({static_cast<int64_t>(kDescriptionBytes)}, at::kByte);
  std::memcpy(text.mutable_data_ptr<uint8_t>(), description.data(),
              std::min(description.size(), kDescriptionBytes));
  throw Disagreement("the ranks do not mean the same: " + list_descriptions(gather(text), size()));
}

void C10dTransport::fail() noexcept {
  if (size() == 1 || failed_.exchange(true)) return;
  try {
    const c10::DeviceType type = memory_.device.type();
    if (backend_name(group_, type) == "gloo") {
      fail_on_gloo();
    } else {
      group_->getBackend(type)->abort();
    }
  } catch (...) {
    // Nothing more can be done for the peers: they see a closed connection or their timeout.
  }
}

// abort() would leave the peers waiting. A receive that times out makes gloo close all pairs of
// this rank, which every peer sees at once. A pair that is broken already refuses the receive
// without closing the others, so peers are tried until one wait has really timed out.
void C10dTransport::fail_on_gloo() {
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
    try {
      unanswered_.push_back(group_->recv(nothing, peer, kUnansweredTag));
      unanswered_.back()->wait(std::chrono::milliseconds(10));
    } catch (const std::exception&) {
      // Expected: the timeout, or a pair that is closed.
    }
  }
}

}  // namespace zen
