// The lanes of one engine, and the group as the pipeline sees it: what concerns all lanes.
//
// The first lane is there from the beginning and carries what the ranks say to each other about
// buckets. It is the CPU's if the group moves CPU tensors, otherwise the current GPU's. Others are
// made when their first tensor comes, which is the same moment on all ranks.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "torch/lane.h"

namespace zen {

class Lanes final : public Transport {
 public:
  // Throws InvalidArgument if the group moves tensors of no kind that this build knows.
  explicit Lanes(LaneOptions options);

  // The lane of the device, made if need be. Of one thread.
  Lane& at(at::Device device);

  // To the ranks of this node, on the first lane; null if every rank is a node of its own.
  Transport* node() const { return first().node(); }

  // Collective, over the first lane. Returns the value of rank 0, of the first node.
  uint32_t broadcast(uint32_t value);

  void end_iteration();  // of all lanes

  Mode mode() const { return mode_; }  // of the first lane

  int rank() const override { return options_.group->getRank(); }
  int size() const override { return options_.group->getSize(); }
  // Ordered if any lane is. Chunks gain nothing if messages of GPU tensors go by collectives.
  Traits traits() const override;
  void agree(uint64_t fingerprint, const std::string& description) override;
  void fail() noexcept override;
  Traffic traffic() const override;

  // Messages travel on the lanes: these are the first lane's.
  Ticket expect(const Tag& tag, std::span<const Expected> from) override {
    return first().transport().expect(tag, from);
  }
  void send(Ticket ticket, std::span<const Outgoing> messages) override {
    first().transport().send(ticket, messages);
  }
  std::vector<Buffer> wait(Ticket ticket) override { return first().transport().wait(ticket); }
  void all_reduce(const Buffer& data, DType dtype, Reduce reduce) override {
    first().transport().all_reduce(data, dtype, reduce);
  }

 private:
  struct Kept {
    at::Device device;
    std::unique_ptr<Lane> lane;
  };

  Lane& first() const { return *lanes_.front().lane; }

  LaneOptions options_;
  Mode mode_;
  mutable std::mutex mutex_;  // fail() may come from another thread than the one that adds lanes
  std::vector<Kept> lanes_;
};

}  // namespace zen
