// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"

namespace tandem::ops {

// gated = context * sigmoid(gate), the input of an attention's output projection. context, gated: [tokens,
// heads head_dim]. qkv: rows qkv_stride apart, with the gate of each query head after its query, each of
// head_dim columns.
template <typename E>
struct OutputGateArgs {
  static constexpr const char* kName = "OutputGate";
  const E* context;
  const E* qkv;
  int64_t qkv_stride;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  E* gated;

  // The offset of a gate in qkv, and in the gradient of qkv, which has the same stride.
  constexpr int64_t GateOf(int64_t token, int64_t head) const {
    return token * qkv_stride + (2 * head + 1) * head_dim;
  }
};

// Overwrites grad_context, which may be grad_gated itself, and the gates' columns of grad_qkv. Recomputes
// `gated`.
template <typename E>
struct OutputGateBackwardArgs {
  static constexpr const char* kName = "OutputGateBackward";
  OutputGateArgs<E> forward;
  const E* grad_gated;
  E* grad_context;
  E* grad_qkv;
};

}  // namespace tandem::ops
