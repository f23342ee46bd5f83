// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

namespace tandem::ops {

// gated = rms(y) * weight * silu(gate), row by row. The norm is before the gate, while GatedNorm has it
// after. y, gated: [rows, columns]; weight: [columns]; gate: [rows / together, together * columns], with the
// gates of `together` rows side by side, rows gate_stride apart.
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

  // The offset of a row's gate in `gate`, or of its gradient in grad_gate.
  constexpr int64_t GateOf(int64_t row, int64_t stride) const {
    return row / together * stride + row % together * columns;
  }
};

// Overwrites grad_y, grad_gate (laid out as `gate`, rows grad_gate_stride apart) and grad_weight, a sum over
// the rows in a fixed order.
template <typename E>
struct NormGateBackwardArgs {
  static constexpr const char* kName = "NormGateBackward";
  NormGateArgs<E> forward;  // its `gated` is not read
  const E* grad_gated;
  E* grad_y;
  E* grad_gate;
  int64_t grad_gate_stride;
  device::Arithmetic<E>* grad_weight;
  Workspace work;  // of NormGateBackwardWorkBytes (delta_work.h)
};

}  // namespace tandem::ops
