#include "schemes/measured_rates.h"

#include <algorithm>

namespace zen {

namespace {

// Less than this moves or does too little to tell a rate from the noise.
constexpr double kTellingBytes = 256 << 10;
constexpr double kTellingValues = 10'000;

constexpr Rates kStandard;

double stage(const Trial& trial, Stage which) {
  return trial.stages[static_cast<size_t>(which)];
}

void average_in(double& rate, double seen) {
  rate = rate == 0 ? seen : (rate + seen) / 2;
}

void take_faster(double& factor, double seen) {
  factor = factor == 0 ? seen : std::min(factor, seen);
}

double selecting(const Work& work, const Rates& rates) {
  return work.scanned * rates.scanned + work.listed * rates.listed;
}

void learn_work(WorkFactors& factors, const Trial& trial, const Work& work, bool packed) {
  const double selected = stage(trial, Stage::select) + stage(trial, Stage::encode);
  const double merged = stage(trial, Stage::reduce), written = stage(trial, Stage::decode);
  if (!packed) {
    if (work.scanned >= kTellingValues)
      take_faster(factors.select, selected / selecting(work, kStandard));
    if (work.merged >= kTellingValues)
      take_faster(factors.merge, merged / (work.merged * kStandard.merged));
    if (work.written >= kTellingValues)
      take_faster(factors.write, written / (work.written * kStandard.written));
    return;
  }
  if (work.packed < kTellingValues || factors.select == 0) return;
  const Rates raw = rates_of({}, factors);
  const double more = selected + merged + written - selecting(work, raw) -
                      work.merged * raw.merged - work.written * raw.written;
  const double standard = work.packed * kStandard.packed + work.unpacked * kStandard.unpacked;
  take_faster(factors.pack, std::max(0.1, more / standard));
}

// Undoes seconds_of(): what the wire must have taken if work and latency took this much.
double wire_seconds(double total, double work, int chunks) {
  const double behind_work = total - work / chunks;  // if the wire took longer than the work
  if (behind_work >= work) return behind_work;
  return std::max(0.0, (total - work) * chunks);
}

void learn_link(LinkRates& link, const WorkFactors& factors, const Trial& trial,
                const Choosable& tried, const Prediction& prediction, int chunks) {
  const double bytes = prediction.busiest_bytes();
  if (bytes < kTellingBytes) return;
  const Seconds seconds =
      seconds_of(prediction, rates_of(link, factors), shape_of(*tried.scheme), chunks);
  const double wire =
      wire_seconds(std::max(0.0, trial.seconds - seconds.latency), seconds.work, chunks);
  average_in(tried.scheme->has_placement ? link.byte : link.ring_byte, wire / bytes);
}

}  // namespace

Trial slowest(const std::vector<Findings>& findings) {
  Trial result = findings[0].trial;
  for (const Findings& of_rank : findings) {
    const Trial& trial = of_rank.trial;
    if (trial.bucket != result.bucket || trial.candidate != result.candidate) return {};
    result.seconds = std::max(result.seconds, trial.seconds);
    result.round_seconds = std::max(result.round_seconds, trial.round_seconds);
    for (int i = 0; i < kStages; ++i)
      result.stages[i] = std::max(result.stages[i], trial.stages[i]);
  }
  return result;
}

void learn(LinkRates& link, WorkFactors& work, const Trial& trial, const Choosable& tried,
           const Prediction& prediction, int chunks, int ranks) {
  // A round costs its slowest message, and every message some work: nobody knows how much each, so
  // half and half.
  take_faster(link.round, trial.round_seconds / 2);
  take_faster(link.message, trial.round_seconds / 2 / std::max(1, ranks - 1));
  if (tried.scheme->has_placement) learn_work(work, trial, prediction.work, tried.pack_values);
  learn_link(link, work, trial, tried, prediction, chunks);
}

Rates rates_of(const LinkRates& link, const WorkFactors& work) {
  const auto or_else = [](double measured, double standard) {
    return measured > 0 ? measured : standard;
  };
  Rates rates;
  rates.round = or_else(link.round, rates.round);
  rates.message = or_else(link.message, rates.message);
  rates.byte = or_else(link.byte, or_else(link.ring_byte, rates.byte));
  rates.ring_byte = or_else(link.ring_byte, rates.byte);
  const double select = or_else(work.select, 1);
  rates.scanned *= select;
  rates.listed *= select;
  rates.merged *= or_else(work.merge, select);
  rates.written *= or_else(work.write, select);
  const double pack = or_else(work.pack, select);
  rates.packed *= pack;
  rates.unpacked *= pack;
  return rates;
}

}  // namespace zen
