// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"

namespace tandem::ops {

// activated = silu(gate) * up; silu(x) = x / (1 + exp(-x)). gate_up: [rows, 2 inner], gate in the first half
// of the columns; activated: [rows, inner].
//
// For experts, each row of `activated` is multiplied by weights[t], the probability of its expert, and only
// the first *rows_there rows are computed; that number is in the device's memory, and other rows are not
// written. If rows_there is null, all rows are computed, and weights are the gates of an MLP that every token
// visits, or null.
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

// Overwrites grad_gate_up. Also recomputes `activated`, which may be grad_activated itself, for the weight
// gradient of the next product. grad_weights is null if weights is.
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
