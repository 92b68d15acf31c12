// The backend's own dense all-reduce: what the other schemes are measured against, and what the
// chooser takes when a gradient is dense.
#include <string>

#include "core/error.h"
#include "schemes/exchange.h"
#include "schemes/list.h"

namespace zen {
namespace {

class Allreduce final : public Exchange {
 public:
  explicit Allreduce(const Context& context) : context_(context), reduce_(reduction(context)) {}

  void prepare() override {}

  // A backend's all-reduce is posted and waited for in one call.
  void post() override {}

  void finish() override {
    const StageScope scope(context_.observer, Stage::reduce);
    context_.transport.all_reduce(context_.gradient.data, context_.gradient.dtype, reduce_);
  }

  Report report() const override { return {}; }

 private:
  static Reduce reduction(const Context& context) {
    const int size = context.transport.size();
    if (context.divisor == 1) return Reduce::sum;
    if (context.divisor == static_cast<float>(size)) return Reduce::mean;
    throw InvalidArgument("allreduce divides by 1 or by the number of ranks (" +
                          std::to_string(size) + "), not by " + std::to_string(context.divisor));
  }

  Context context_;
  Reduce reduce_;
};

}  // namespace

Scheme allreduce() {
  return {.name = "allreduce",
          .has_placement = false,
          .placement = PlacementKind::whole,
          .make = [](const Context& context) -> std::unique_ptr<Exchange> {
            return std::make_unique<Allreduce>(context);
          }};
}

}  // namespace zen
