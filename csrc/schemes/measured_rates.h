// How fast this job's link and processors are, fitted to exchanges that were measured.
#pragma once

#include <vector>

#include "core/cost_model.h"
#include "schemes/candidates.h"
#include "schemes/findings.h"

namespace zen {

// What all buckets of a group share. Seconds; 0: not measured yet.
struct LinkRates {
  double round = 0, message = 0;
  double byte = 0, ring_byte = 0;
};

// What depends on where a bucket's non-zeros are: seconds over those of the standard Rates; 0: not
// measured yet.
struct WorkFactors {
  double select = 0, merge = 0, write = 0;
  double pack = 0;  // of packing and unpacking
};

// The slowest rank's side of a trial, in every respect: that is what a bucket waits for.
Trial slowest(const std::vector<Findings>& findings);

// Learns from one trial of `tried`, of which `prediction` tells how much there was to send and to
// do. The link's rates are averages that follow the latest trials. Latency and work are taken at
// their fastest: a rank that was scheduled late, or memory that is touched for the first time, is
// slow once.
void learn(LinkRates& link, WorkFactors& work, const Trial& trial, const Choosable& tried,
           const Prediction& prediction, int chunks, int ranks);

// The standard ones, corrected by whatever has been measured.
Rates rates_of(const LinkRates& link, const WorkFactors& work);

}  // namespace zen
