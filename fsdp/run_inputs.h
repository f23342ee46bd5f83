// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "fsdp/norm_outcome.h"

namespace tandem::fsdp {

// The values that the host passes to the device for one run of a program. Copied byte by byte into a ring
// buffer.
struct RunInputs {
  // For the step whose gradients the run computes:
  int64_t step = 0;  // from 1; must be the first member, because nodes read it as their random key
  NormRequests requests;

  // For the step whose gradients the run applies, which an earlier run computed:
  int64_t update = 0;  // Adam's t, from 1; does not count steps that left the weights unchanged
  double learning_rate = 0;
  // 1 - beta^t. The host computes them, so that the weights do not depend on a device's pow().
  double correction1 = 1;
  double correction2 = 1;
};

inline double BiasCorrection(double beta, int64_t update) {
  return 1 - std::pow(beta, static_cast<double>(update));
}

}  // namespace tandem::fsdp
