// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "fsdp/norm_outcome.h"

namespace tandem::fsdp {

// What the host passes to the device for one run of a program: one element of the ring of inputs, copied as
// it is.
struct RunInputs {
  // The step whose gradients the run computes.
  int64_t step = 0;  // from 1. First, so that a node's random keys need to know no more of this struct.
  NormRequests requests;

  // The step whose gradients the run applies.
  int64_t applied_step = 0;  // Adam's t, from 1: steps that were issued, whether or not the weights moved
  double learning_rate = 0;
  // 1 - beta^t. The host works them out, so that no device's pow() shows in the weights.
  double correction1 = 1;
  double correction2 = 1;
};

inline double BiasCorrection(double beta, int64_t applied_step) {
  return 1 - std::pow(beta, static_cast<double>(applied_step));
}

}  // namespace tandem::fsdp
