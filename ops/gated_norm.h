// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// normed = rms(y * silu(gate)) * weight. The RMSNorm covers each of `groups` equal parts of a row separately.
// y, normed: [rows, columns]; gate: [rows, columns], rows gate_stride apart; weight: [columns].
template <typename E>
struct GatedNormInputs {
  const E* y;
  const E* gate;
  int64_t gate_stride;
  const E* weight;
  double epsilon;
  int64_t rows;
  int64_t columns;
  int64_t groups;
};
template <typename E>
struct GatedNormArgs : GatedNormInputs<E> {
  static constexpr const char* kName = "GatedNorm";
  E* normed;
};

// Overwrites grad_y, grad_gate (rows grad_gate_stride apart) and grad_weight, a sum over the rows in a fixed
// order.
template <typename E>
struct GatedNormBackwardArgs : GatedNormInputs<E> {
  static constexpr const char* kName = "GatedNormBackward";
  const E* grad_normed;
  E* grad_y;
  E* grad_gate;
  int64_t grad_gate_stride;
  device::Arithmetic<E>* grad_weight;
  Workspace work;  // of GatedNormBackwardWorkBytes (mixer_work.h)
};

}  // namespace tandem::ops
