// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/host_device.h"
#include "fsdp/norm_outcome.h"

namespace tandem::fsdp {

// AdamW with decoupled decay (Loshchilov and Hutter, 2019):
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²
//   w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay w)
// with g = clip · sum / divisor, in the main type; clip and divisor come from the NormOutcome, lr and t from
// the RunInputs. Each element is updated independently of the others, so the result does not depend on the
// shards.
struct AdamWConfig {
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;  // of parameters with `decays`
};

// The constants of the formula, in the type of the shard.
template <typename T>
struct AdamWScalars {
  // correction1, correction2: 1 - beta^t (run_inputs.h).
  TANDEM_HOST_DEVICE AdamWScalars(const AdamWConfig& config, double learning_rate, double correction1,
                                  double correction2, const NormOutcome& outcome)
      : divisor(static_cast<T>(outcome.divisor)),
        clip(static_cast<T>(outcome.clip)),
        beta1(static_cast<T>(config.beta1)),
        beta2(static_cast<T>(config.beta2)),
        one_minus_beta1(static_cast<T>(1 - config.beta1)),
        one_minus_beta2(static_cast<T>(1 - config.beta2)),
        correction1(static_cast<T>(correction1)),
        correction2(static_cast<T>(correction2)),
        learning_rate(static_cast<T>(learning_rate)),
        epsilon(static_cast<T>(config.epsilon)),
        weight_decay(static_cast<T>(config.weight_decay)) {}

  T divisor;
  T clip;
  T beta1;
  T beta2;
  T one_minus_beta1;
  T one_minus_beta2;
  T correction1;
  T correction2;
  T learning_rate;
  T epsilon;
  T weight_decay;
};

}  // namespace tandem::fsdp
