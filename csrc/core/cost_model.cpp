#include "core/cost_model.h"

#include <algorithm>

#include "core/message_size.h"

namespace zen {

namespace {

// More ranks than this are taken to be like the first one: unions of all runs of ranks would take
// too long.
constexpr int kRanksInDetail = 16;

// Predicts one scheme on one bucket.
class Model {
 public:
  Model(const Shape& shape, const Usage& usage, const Sparsity& sparsity)
      : shape_(shape),
        usage_(usage),
        sparsity_(sparsity),
        ranks_(sparsity.ranks()),
        packed_share_(usage.pack_values ? sparsity.packed_share() : 1) {
    result_.bytes_out.assign(static_cast<size_t>(ranks_), 0);
    result_.bytes_in.assign(static_cast<size_t>(ranks_), 0);
    messages_of_owner_.assign(static_cast<size_t>(ranks_), 0);
  }

  Prediction run() {
    switch (shape_.travel) {
      case Travel::ring:
        ring();
        break;
      case Travel::everybody:
        everybody();
        break;
      case Travel::doubling:
        doubling();
        break;
      case Travel::push_pull:
      case Travel::push_broadcast:
      case Travel::push_scatter:
        push_and_pull();
        break;
    }
    return result_;
  }

 private:
  double numel() const { return static_cast<double>(sparsity_.numel()); }
  int in_detail() const { return std::min(ranks_, kRanksInDetail); }
  double others() const { return ranks_ - 1; }

  Extent chunk(int number) const {
    return {static_cast<double>(number) / usage_.chunks, (number + 1.0) / usage_.chunks};
  }
  PartSize size_of_part(Extent part) const {
    const double share = part.end - part.begin;
    return {numel() * share, sparsity_.words() * share};
  }
  double bytes(const Counts& counts, const PartSize& part, DType dtype, Choice choice) const {
    return message_size(counts, part, dtype, choice, packed_share_);
  }

  // Ranks beyond those looked at in detail move what the first one moves.
  void like_the_first() {
    for (int rank = in_detail(); rank < ranks_; ++rank) {
      result_.bytes_out[rank] = result_.bytes_out[0];
      result_.bytes_in[rank] = result_.bytes_in[0];
    }
  }

  // Selecting reads everything and writes what this rank lists.
  void select_all() {
    result_.work.scanned = numel();
    for (int rank = 0; rank < ranks_; ++rank)
      result_.work.listed =
          std::max(result_.work.listed, sparsity_.listed(rank, rank + 1).elements);
    result_.work.written = sparsity_.listed(0, ranks_).elements;
  }
  void pack_work(double packed, double unpacked) {
    if (!usage_.pack_values) return;
    result_.work.packed = packed;
    result_.work.unpacked = unpacked;
  }

  void ring() {
    const double moved =
        2 * others() / ranks_ * numel() * static_cast<double>(size_of(usage_.dtype));
    std::ranges::fill(result_.bytes_out, moved);
    std::ranges::fill(result_.bytes_in, moved);
    result_.rounds = result_.messages = 2 * (ranks_ - 1);
  }

  void everybody() {
    select_all();
    double sum = 0, all = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      double own = 0;
      for (int number = 0; number < usage_.chunks; ++number) {
        const Extent part = chunk(number);
        own += bytes(sparsity_.listed(rank, rank + 1, part), size_of_part(part), usage_.wire,
                     shape_.push);
      }
      result_.bytes_out[rank] = others() * own;
      sum += own;
      all += sparsity_.listed(rank, rank + 1).elements;
      result_.bytes_in[rank] = -own;
    }
    for (double& in : result_.bytes_in) in += sum;
    result_.rounds = 1;
    result_.messages = (ranks_ - 1) * usage_.chunks;
    result_.work.merged = all;
  }

  void doubling();
  void add_step(int rank, int first, int last, int other_first, int other_last, bool partial);
  void push_and_pull();
  void push(Extent part, std::vector<double>& sums);
  void pull(const std::vector<double>& sums);
  double share_of(int owner, Extent part, Extent& own) const;

  const Shape& shape_;
  const Usage& usage_;
  const Sparsity& sparsity_;
  int ranks_;
  double packed_share_;
  std::vector<double>
      messages_of_owner_;  // sums that it sends: one for each chunk it has a part of
  Prediction result_;
};

// The ranks as recursive doubling numbers them (docs/schemes.md): of the first pairs, as many as
// there are ranks beyond a power of two, the even rank stands for both.
struct Participants {
  explicit Participants(int ranks) {
    while (2 * count <= ranks) count *= 2, ++steps;
    pairs = ranks - count;
  }
  // Ranks [first(m), first(m + 1)) stand behind participant m.
  int first(int participant) const { return participant + std::min(participant, pairs); }

  int count = 1, steps = 0, pairs = 0;
};

void Model::doubling() {
  select_all();
  const Participants participants(ranks_);
  const DType own = usage_.wire;
  // What `first` to `last` participants have together, as a message.
  const auto message = [&](int first, int last) {
    const int begin = participants.first(first), end = participants.first(last);
    double total = 0;
    for (int number = 0; number < usage_.chunks; ++number) {
      const Extent part = chunk(number);
      total += bytes(sparsity_.listed(begin, end, part), size_of_part(part),
                     end - begin > 1 ? DType::f32 : own, shape_.push);
    }
    return total;
  };
  for (int m = 0; m < participants.count && participants.first(m) < in_detail(); ++m) {
    const int rank = participants.first(m);
    double merged = 0, packed = 0;
    for (int step = 0; step < participants.steps; ++step) {
      const int span = 1 << step, first = m / span * span, other = first ^ span;
      result_.bytes_out[rank] += message(first, first + span);
      result_.bytes_in[rank] += message(other, other + span);
      const double mine =
          sparsity_.listed(participants.first(first), participants.first(first + span)).elements;
      const double theirs =
          sparsity_.listed(participants.first(other), participants.first(other + span)).elements;
      merged += mine + theirs;
      packed += mine;
    }
    result_.work.merged = std::max(result_.work.merged, merged);
    pack_work(std::max(result_.work.packed, packed), std::max(result_.work.unpacked, merged));
    if (m >= participants.pairs) continue;
    const Extent all;
    const double pushed =
        bytes(sparsity_.listed(rank + 1, rank + 2), size_of_part(all), own, shape_.push);
    const double result = bytes(sparsity_.listed(0, ranks_), size_of_part(all), own, shape_.push);
    result_.bytes_in[rank] += pushed;
    result_.bytes_out[rank] += result;
    result_.bytes_out[rank + 1] = pushed;
    result_.bytes_in[rank + 1] = result;
  }
  like_the_first();
  result_.rounds = participants.steps + (participants.pairs > 0 ? 2 : 0);
  result_.messages = result_.rounds * usage_.chunks;
}

// What of `part` is the owner's: an even share of it, wherever it lies; or `own`, a range.
double Model::share_of(int owner, Extent part, Extent& own) const {
  own = part;
  if (shape_.placement != PlacementKind::ranges) return 1.0 / ranks_;
  own.begin = std::max(part.begin, static_cast<double>(owner) / ranks_);
  own.end = std::min(part.end, (owner + 1.0) / ranks_);
  return 1;
}

void Model::push_and_pull() {
  select_all();
  std::vector<double> sums(static_cast<size_t>(ranks_), 0);
  for (int number = 0; number < usage_.chunks; ++number) push(chunk(number), sums);
  pull(sums);
  double listed = 0;
  for (int rank = 0; rank < ranks_; ++rank) listed += sparsity_.listed(rank, rank + 1).elements;
  const double busiest = shape_.placement == PlacementKind::ranges ? sparsity_.skew() : 1;
  result_.work.merged = listed / ranks_ * busiest;
  pack_work(result_.work.listed + result_.work.written / ranks_,
            result_.work.merged + result_.work.written);
}

// One chunk's messages to the owners. Adds each owner's sum of the chunk, as a message, to `sums`.
void Model::push(Extent part, std::vector<double>& sums) {
  for (int owner = 0; owner < ranks_; ++owner) {
    if (owner > 0 && shape_.placement != PlacementKind::ranges) {  // all owners have the same
      sums[owner] = sums[0];
      messages_of_owner_[owner] = messages_of_owner_[0];
      continue;
    }
    Extent own;
    const double share = share_of(owner, part, own);
    if (own.end - own.begin < 1e-9) continue;
    PartSize size = size_of_part(own);
    size.elements *= share, size.slots *= share;
    messages_of_owner_[owner] += 1;
    sums[owner] += bytes(sparsity_.listed(0, ranks_, own) * share, size, usage_.wire, shape_.pull);
    for (int rank = 0; rank < ranks_; ++rank) {
      const double pushed =
          bytes(sparsity_.listed(rank, rank + 1, own) * share, size, usage_.wire, shape_.push);
      if (shape_.placement == PlacementKind::ranges) {
        if (rank == owner) continue;
        result_.bytes_out[rank] += pushed;
        result_.bytes_in[owner] += pushed;
      } else {
        result_.bytes_out[rank] += others() * pushed;
        for (int other = 0; other < ranks_; ++other)
          if (other != rank) result_.bytes_in[other] += pushed;
      }
    }
  }
}

void Model::pull(const std::vector<double>& sums) {
  double all = 0;
  for (const double sum : sums) all += sum;
  int depth = 0;
  for (int reached = 1; reached < ranks_; reached *= 2) ++depth;
  for (int rank = 0; rank < ranks_; ++rank) {
    const double own = sums[rank];
    if (shape_.travel == Travel::push_scatter) {
      // A piece of the own sum to each other rank, then the own piece of every sum to all without.
      result_.bytes_out[rank] +=
          others() / ranks_ * own + others() / ranks_ * own + (ranks_ - 2.0) / ranks_ * (all - own);
      result_.bytes_in[rank] += all - own;
      for (int owner = 0; owner < ranks_; ++owner) {  // each piece has a header of its own
        const double headers = kHeaderBytes * messages_of_owner_[owner];
        result_.bytes_out[rank] += headers * (owner == rank ? 2 * others() : ranks_ - 2.0);
        if (owner != rank) result_.bytes_in[rank] += headers * ranks_;
      }
      continue;
    }
    result_.bytes_in[rank] += all - own;
    if (shape_.travel == Travel::push_pull) {
      result_.bytes_out[rank] += others() * own;
      continue;
    }
    for (int owner = 0; owner < ranks_; ++owner) {
      const int behind = (rank - owner + ranks_) % ranks_;
      for (int reach = 1; reach < ranks_; reach *= 2)
        if (behind < reach && behind + reach < ranks_) result_.bytes_out[rank] += sums[owner];
    }
  }
  result_.rounds = 1 + (shape_.travel == Travel::push_pull      ? 1
                        : shape_.travel == Travel::push_scatter ? 2
                                                                : depth);
  result_.messages = 2 * (ranks_ - 1) * usage_.chunks;
}

}  // namespace

double Prediction::busiest_bytes() const {
  double most = 0;
  for (const double bytes : bytes_out) most = std::max(most, bytes);
  for (const double bytes : bytes_in) most = std::max(most, bytes);
  return most;
}

Prediction predict(const Shape& shape, const Usage& usage, const Sparsity& sparsity) {
  return Model(shape, usage, sparsity).run();
}

Seconds seconds_of(const Prediction& prediction, const Rates& rates, const Shape& shape,
                   int chunks) {
  const Work& work = prediction.work;
  Seconds seconds;
  seconds.latency = rates.round * prediction.rounds + rates.message * prediction.messages;
  seconds.wire =
      prediction.busiest_bytes() * (shape.travel == Travel::ring ? rates.ring_byte : rates.byte);
  seconds.work = work.scanned * rates.scanned + work.listed * rates.listed +
                 work.merged * rates.merged + work.written * rates.written +
                 work.packed * rates.packed + work.unpacked * rates.unpacked;
  seconds.total = seconds.latency + std::max(seconds.wire, seconds.work) +
                  std::min(seconds.wire, seconds.work) / chunks;
  return seconds;
}

}  // namespace zen
