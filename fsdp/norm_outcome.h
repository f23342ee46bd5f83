// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "fsdp/double_double.h"
#include "fsdp/host_device.h"

namespace tandem::fsdp {

// What one rank requests of all ranks. GradientNorm combines the requests of all ranks.
struct NormRequests {
  uint32_t bits = 0;   // the ranks' bits are combined by OR
  double profile = 0;  // a number that the caller chooses; the largest over all ranks wins; 0: no request
  // If the norm is larger than this, the step is not applied. The largest limit over all ranks wins, because
  // the ranks compute limits with logarithms, whose last bit may differ between hosts. 0: no limit.
  double limit = 0;
};

// The norm terms of one unit's gradient on one rank, as the last reduction of a run leaves them.
struct UnitNormTerms {
  DoubleDouble squares;  // sum over the finite elements
  double nonfinite = 0;  // number of the other elements
};

// The terms that one rank sends in GradientNorm. All are doubles, so that one all-gather carries them.
struct NormTerms {
  // high and low: a DoubleDouble, the sum of squares of the finite elements of the rank's gradient shards.
  double high = 0;
  double low = 0;
  double nonfinite = 0;  // number of the other elements
  double requests = 0;   // NormRequests::bits
  double profile = 0;
  double uncounted = 0;  // number of targets in its microbatches that the loss ignores
  double limit = 0;
};

// The result of GradientNorm. It has the same bits on every rank.
struct NormOutcome {
  double norm = 0;        // of the mean gradient, before clipping; NaN if some element is not finite
  double clip = 1;        // the factor that clips the gradient, <= 1
  int64_t nonfinite = 0;  // number of gradient elements that are not finite, over all ranks
  uint32_t requests = 0;  // union of the ranks' request bits
  double profile = 0;     // the largest of the ranks' NormRequests::profile
  // The divisor of the sum of contributions: the number of targets that the loss does not ignore, over all
  // ranks, in units of a full microbatch. If it is 0, the norm is NaN.
  double divisor = 1;
  // If false, the optimizer leaves weights and state as they are, because the norm is not finite or above the
  // limit.
  bool applied = true;
};

// What AgreeOnNorm needs to turn a step's sum of contributions into a mean over targets, and to clip it.
struct MeanConfig {
  double num_microbatches = 1;  // contributions of a step, over all ranks
  // Targets of a microbatch, ignored ones included. A contribution is the sum over a microbatch's targets,
  // divided by this number.
  double targets = 1;
  double max_norm = 0;  // the norm to which gradients are clipped; 0: no clipping
};

// Folds the terms of all ranks in rank order. If the loss ignores no target, the divisor is exactly
// num_microbatches.
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
  // Finite elements whose squares overflow a double are refused like NaN.
  outcome.applied = IsFinite(outcome.norm) && !(limit > 0 && outcome.norm > limit);
  if (config.max_norm > 0 && outcome.applied) {
    const double clip = config.max_norm / (outcome.norm + 1e-6);
    outcome.clip = clip < 1 ? clip : 1;
  }
  return outcome;
}

}  // namespace tandem::fsdp
