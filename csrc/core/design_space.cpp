#include "core/design_space.h"

#include <algorithm>
#include <cstddef>

namespace zen {

namespace {

// Quantities the formulas share. gamma(k) is the densification of k ranks.
struct Model {
  explicit Model(const Overlap& overlap, bool balanced)
      : densification(overlap.densification),
        n(static_cast<double>(overlap.densification.size())),
        skew(balanced ? 1 : overlap.skew) {}

  double gamma(size_t ranks) const { return densification[ranks - 1]; }
  double gamma_n() const { return densification.back(); }
  size_t ranks() const { return densification.size(); }

  // Share of the non-zeros in the fullest of `pieces` contiguous pieces of the tensor: at least an
  // even share, and at least the fullest part, which lies in one of them.
  double fullest(double pieces) const { return std::max(1 / pieces, skew / n); }

  std::span<const double> densification;
  double n, skew;
};

// Everybody receives all tensors, whole. In the ring, stage t forwards the sum of t ranks; in the
// hierarchy, stage t swaps the sums of 2^(t-1) ranks. Sent point to point, a tensor is always one
// rank's, whether it is added on arrival or at the end.
double centralised(const Combination& combination, const Model& model) {
  const bool one_shot = combination.aggregation == Aggregation::one_shot;
  if (one_shot || combination.communication == Communication::point_to_point) return model.n - 1;
  double bytes = 0;
  const bool ring = combination.communication == Communication::ring;
  for (size_t summed = 1; summed < model.ranks(); summed = ring ? summed + 1 : 2 * summed)
    bytes += model.gamma(summed);
  return bytes;
}

// The first step of a parallel scheme: part j of all ranks comes together at rank j.
double push(const Combination& combination, const Model& model) {
  const bool one_shot = combination.aggregation == Aggregation::one_shot;
  const double part = model.fullest(model.n);
  if (combination.communication == Communication::point_to_point) return (model.n - 1) * part;
  double bytes = 0;
  if (combination.communication == Communication::ring) {
    for (size_t summed = 1; summed < model.ranks(); ++summed)
      bytes += part * (one_shot ? static_cast<double>(summed) : model.gamma(summed));
    return bytes;
  }
  // Recursive halving: stage t moves a 2^-t piece of the sum of 2^(t-1) ranks.
  for (size_t summed = 1; summed < model.ranks(); summed *= 2) {
    const double piece = model.fullest(2 * static_cast<double>(summed));
    bytes += piece * (one_shot ? static_cast<double>(summed) : model.gamma(summed));
  }
  return bytes;
}

// The second step: the sum of every part reaches everybody. Unless parts are even, point-to-point
// servers may also broadcast, by a binomial tree or by scatter and all-gather (appendix B.1).
double pull(const Combination& combination, const Model& model) {
  const double unicast = (model.n - 1) * model.fullest(model.n);
  double rounds = unicast;
  if (combination.communication == Communication::point_to_point) {
    double depth = 0;
    for (size_t reached = 1; reached < model.ranks(); reached *= 2) ++depth;
    rounds = std::min({unicast, depth, 2 * (model.n - 1) / model.n});
  } else if (combination.communication == Communication::hierarchy) {
    rounds = 0;  // recursive doubling: stage t moves 2^(t-1) parts
    for (size_t parts = 1; parts < model.ranks(); parts *= 2)
      rounds += model.fullest(model.n / static_cast<double>(parts));
  }
  return rounds * model.gamma_n();
}

}  // namespace

std::vector<Combination> all_combinations() {
  std::vector<Combination> all;
  for (const auto communication :
       {Communication::ring, Communication::hierarchy, Communication::point_to_point})
    for (const auto aggregation : {Aggregation::incremental, Aggregation::one_shot})
      for (const auto partition :
           {Partition::centralised, Partition::parallel_balanced, Partition::parallel_unbalanced})
        all.push_back({communication, aggregation, partition});
  return all;
}

std::string name_of(const Combination& combination) {
  static const char* const kCommunication[] = {"ring", "hierarchy", "point-to-point"};
  static const char* const kAggregation[] = {"incremental", "one-shot"};
  static const char* const kPartition[] = {"centralised", "parallel, balanced",
                                           "parallel, unbalanced"};
  return std::string(kCommunication[static_cast<size_t>(combination.communication)]) + ", " +
         kAggregation[static_cast<size_t>(combination.aggregation)] + ", " +
         kPartition[static_cast<size_t>(combination.partition)];
}

double relative_bytes(const Combination& combination, const Overlap& overlap) {
  const Model model(overlap, combination.partition != Partition::parallel_unbalanced);
  if (combination.partition == Partition::centralised) return centralised(combination, model);
  return push(combination, model) + pull(combination, model);
}

}  // namespace zen
