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
};

// What all ranks know after GradientNorm, the same bits on each of them.
struct NormOutcome {
  double norm = 0;        // of the mean gradient, before clipping; NaN where it has nonfinite elements
  double clip = 1;        // coefficient, <= 1
  int64_t nonfinite = 0;  // gradient elements, over all ranks
  uint32_t requests = 0;  // union of the ranks' request bits
  double profile = 0;     // the largest of the ranks'
  bool finite = true;     // false: the optimizer leaves weights and state alone
};

// Folds the terms of all ranks in rank order.
//   num_microbatches: contributions of the step over all ranks, which the mean divides by
//   max_norm: the norm that clipping leaves; 0: no clipping
TANDEM_HOST_DEVICE inline NormOutcome AgreeOnNorm(const NormTerms* terms, int ranks, double num_microbatches,
                                                  double max_norm) {
  NormOutcome outcome;
  DoubleDouble squares;
  for (int rank = 0; rank < ranks; ++rank) {
    squares.Add(DoubleDouble{terms[rank].high, terms[rank].low});
    outcome.nonfinite += static_cast<int64_t>(terms[rank].nonfinite);
    outcome.requests |= static_cast<uint32_t>(terms[rank].requests);
    outcome.profile = terms[rank].profile > outcome.profile ? terms[rank].profile : outcome.profile;
  }
  outcome.norm = outcome.nonfinite > 0 ? NAN : sqrt(squares.value()) / num_microbatches;
  // Finite elements whose squares overflow a double are as useless as NaN.
  outcome.finite = IsFinite(outcome.norm);
  if (max_norm > 0 && outcome.finite) {
    const double clip = max_norm / (outcome.norm + 1e-6);
    outcome.clip = clip < 1 ? clip : 1;
  }
  return outcome;
}

}  // namespace tandem::fsdp
