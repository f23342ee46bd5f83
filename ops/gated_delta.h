// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/attention_shape.h"
#include "ops/delta_shape.h"
#include "ops/workspace.h"

namespace tandem::ops {

inline constexpr double kDeltaNormEpsilon = 1e-6;  // added to the square of a query's or key's length

// For each value head and token t of a document, with the query and key of the head's key head divided by
// their lengths, |x| = sqrt(x · x + kDeltaNormEpsilon), and the query by sqrt(Dk) besides, β = sigmoid(b) and
// γ = exp(-exp(a_log) softplus(a + dt_bias)):
//   S'_t = γ_t S_{t-1};  S_t = S'_t + k_t ⊗ β_t (v_t - S'_t^T k_t);  y_t = S_t^T q_t
// S before a document is zeros. q, k: [B * S, keys()]; v, y: [B * S, values()]; ba: [B * S, 2 Hv], rows
// ba_stride apart, of each key head the b of its value heads and then their a; dt_bias, a_log: [Hv], in what
// is computed with (float if E is bfloat16). states: kept() numbers, S before the first token of each chunk
// of a sequence, transposed. Other chunks give other roundings, and nothing else.
template <typename E>
struct GatedDeltaInputs {
  using Element = E;
  DeltaShape shape;
  DocumentStarts documents;  // null: each sequence is one document
  const E* q;
  const E* k;
  const E* v;
  const E* ba;
  int64_t ba_stride;
  const device::Arithmetic<E>* dt_bias;
  const device::Arithmetic<E>* a_log;
};
template <typename E>
struct GatedDeltaArgs : GatedDeltaInputs<E> {
  static constexpr const char* kName = "GatedDelta";
  E* y;
  device::Arithmetic<E>* states;
  Workspace work;  // of GatedDeltaWorkBytes (delta_work.h)
};

// Overwrites all gradients; those of dt_bias and a_log are sums over the tokens in one order. The states of a
// chunk are computed again from the one before it. With u_t = β_t (v_t - S'_t^T k_t) and the adjoint G_t of
// S_t, which begins as that of S'_{t+1} times γ_{t+1}:
//   G_t += q_t ⊗ dy_t;  dq_t = S_t dy_t;  du_t = G_t^T k_t;  dv_t = β_t du_t;  dβ_t = <du_t, v_t - S'_t^T
//   k_t>; dk_t = G_t u_t - β_t S'_t du_t;  G'_t = G_t - β_t k_t ⊗ du_t, of S'_t;  d(log γ_t) = <G'_t, S'_t>.
template <typename E>
struct GatedDeltaBackwardArgs : GatedDeltaInputs<E> {
  static constexpr const char* kName = "GatedDeltaBackward";
  const device::Arithmetic<E>* states;
  const E* grad_y;
  E* grad_q;
  E* grad_k;
  E* grad_v;
  E* grad_ba;
  int64_t grad_ba_stride;
  device::Arithmetic<E>* grad_dt_bias;
  device::Arithmetic<E>* grad_a_log;
  Workspace work;  // of GatedDeltaBackwardWorkBytes
};

}  // namespace tandem::ops
