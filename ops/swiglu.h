// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"

namespace tandem::ops {

// activated = silu(gate) * up; silu(x) = x / (1 + exp(-x)). gate_up: [rows, 2 inner], gate in the first half
// of the columns; activated: [rows, inner].
//
// Of experts each row is multiplied by weights[t], the probability with which its expert counts, in the
// activation that the second product reads; and only the first *rows_there are computed, which lies where
// the device reads it, the others are left alone. Otherwise both are null.
template <typename E>
struct SwiGluArgs {
  static constexpr const char* kName = "SwiGlu";
  const E* gate_up;
  const device::Arithmetic<E>* weights;
  const int64_t* rows_there;
  int64_t rows;
  int64_t inner;
  E* activated;
};

// Overwrites grad_gate_up, and recomputes `activated` on the way (the next product's weight gradient needs
// it), which may be grad_activated itself. grad_weights: null where weights are.
template <typename E>
struct SwiGluBackwardArgs {
  static constexpr const char* kName = "SwiGluBackward";
  const E* gate_up;
  const device::Arithmetic<E>* weights;
  const int64_t* rows_there;
  const E* grad_activated;
  int64_t rows;
  int64_t inner;
  E* grad_gate_up;
  E* activated;
  device::Arithmetic<E>* grad_weights;
};

}  // namespace tandem::ops
