#pragma once

#include <cstdint>
#include <vector>

#include "fsdp/sharded_unit.h"
#include "trainer/profiling.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

// What all ranks know after GradientNorm, the same bits on each of them.
struct NormResult {
  double norm = 0;        // of the mean gradient, before clipping
  double clip = 1;        // coefficient, <= 1
  bool finite = true;     // false: the optimizer leaves weights and state alone
  int64_t nonfinite = 0;  // gradient elements, over all ranks
  uint32_t requests = 0;  // union of the ranks' RequestBits
  ProfileSteps profile;   // the one with the highest id of those that ranks want; id 0: none
};

// One all-gather of {high, low, nonfinite, request bits, profile}; folded in rank order on every rank.
//   units: the terms of this rank's shards, in unit order
//   num_microbatches: contributions of the step over all ranks, which the mean divides by
//   max_norm: the norm that clipping leaves; 0: no clipping
// Throws CommError.
NormResult AgreeOnNorm(const std::vector<fsdp::GradientTerms>& units, uint32_t requests,
                       const ProfileSteps& profile, double num_microbatches, double max_norm,
                       comm::Communicator& comm);

}  // namespace tandem::trainer
