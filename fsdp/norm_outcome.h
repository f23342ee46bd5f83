// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "fsdp/double_double.h"
#include "fsdp/host_device.h"

namespace tandem::fsdp {

// What one rank requests of all ranks; they agree on it with the norm.
struct NormRequests {
  uint32_t bits = 0;   // the ranks' bits are combined by OR
  double profile = 0;  // a number chosen by the caller; the largest over all ranks wins; 0: none
  // A step of a larger norm is not applied; the largest over all ranks wins, since their hosts' logarithms
  // may differ in the last bit; 0: none.
  double limit = 0;
};

// The norm terms of one unit's gradient on one rank, as the last reduction of a run leaves them.
struct UnitNormTerms {
  DoubleDouble squares;  // of the finite elements
  double nonfinite = 0;  // elements
};

// What one rank sends to the others for GradientNorm: doubles, so that one all-gather carries them.
struct NormTerms {
  double high = 0;  // sum of squares of the finite elements of its gradient shards, as a DoubleDouble
  double low = 0;
  double nonfinite = 0;  // elements
  double requests = 0;   // bits
  double profile = 0;
  double uncounted = 0;  // targets of its microbatches that do not count
  double limit = 0;
};

// What all ranks know after GradientNorm, the same bits on each of them.
struct NormOutcome {
  double norm = 0;        // of the mean gradient, before clipping; NaN where it has nonfinite elements
  double clip = 1;        // coefficient, <= 1
  int64_t nonfinite = 0;  // gradient elements, over all ranks
  uint32_t requests = 0;  // union of the ranks' request bits
  double profile = 0;     // the largest of the ranks'
  // What sums of contributions are divided by: the targets of all ranks' microbatches that count, in
  // microbatches whose targets all count. 0: there are none, and the norm is NaN.
  double divisor = 1;
  // False: the optimizer leaves weights and state alone. The norm is not finite then, or above the limit.
  bool applied = true;
};

// What a step's gradient is the mean of.
struct MeanConfig {
  double num_microbatches =
      1;                // contributions of a step over all ranks; each is a sum over targets, divided by
  double targets = 1;   // how many a microbatch has, whether they count or not
  double max_norm = 0;  // that clipping leaves; 0: no clipping
};

// Folds the terms of all ranks in rank order. Where all targets count the divisor is num_microbatches
// exactly.
TANDEM_HOST_DEVICE inline NormOutcome AgreeOnNorm(const NormTerms* terms, int ranks,
                                                  const MeanConfig& config) {
  NormOutcome outcome;
  DoubleDouble squares;
  double uncounted = 0;
  double limit = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    squares.Add(DoubleDouble{terms[rank].high, terms[rank].low});
    outcome.nonfinite += static_cast<int64_t>(terms[rank].nonfinite);
    uncounted += terms[rank].uncounted;
    outcome.requests |= static_cast<uint32_t>(terms[rank].requests);
    outcome.profile = terms[rank].profile > outcome.profile ? terms[rank].profile : outcome.profile;
    limit = terms[rank].limit > limit ? terms[rank].limit : limit;
  }
  outcome.divisor = (config.num_microbatches * config.targets - uncounted) / config.targets;
  outcome.norm = outcome.nonfinite > 0 ? NAN : sqrt(squares.value()) / outcome.divisor;
  // Finite elements whose squares overflow a double are as useless as NaN.
  outcome.applied = IsFinite(outcome.norm) && !(limit > 0 && outcome.norm > limit);
  if (config.max_norm > 0 && outcome.applied) {
    const double clip = config.max_norm / (outcome.norm + 1e-6);
    outcome.clip = clip < 1 ? clip : 1;
  }
  return outcome;
}

}  // namespace tandem::fsdp
