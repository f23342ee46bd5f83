// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// gated = rms(y) * weight * silu(gate), row by row: the norm is before the gate (GatedNorm has it behind). y,
// gated: [rows, columns]; weight: [columns]; gate: `together` rows side by side, [rows / together, together *
// columns], gate_stride apart.
template <typename E>
struct NormGateArgs {
  static constexpr const char* kName = "NormGate";
  const E* y;
  const E* gate;
  int64_t gate_stride;
  int64_t together;
  const E* weight;
  double epsilon;
  int64_t rows;
  int64_t columns;
  E* gated;

  // Where the gate of a row begins in it, or in its gradient.
  constexpr int64_t GateOf(int64_t row, int64_t stride) const {
    return row / together * stride + row % together * columns;
  }
};

// Overwrites grad_y, grad_gate, which is laid out as the gate, grad_gate_stride apart, and grad_weight, which
// is a sum over the rows in one order.
template <typename E>
struct NormGateBackwardArgs {
  static constexpr const char* kName = "NormGateBackward";
  NormGateArgs<E> forward;  // `gated` is not read
  const E* grad_gated;
  E* grad_y;
  E* grad_gate;
  int64_t grad_gate_stride;
  device::Arithmetic<E>* grad_weight;
  Workspace work;  // NormGateBackwardWorkBytes (delta_work.h)
};

}  // namespace tandem::ops
