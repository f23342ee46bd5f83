// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/attention_shape.h"
#include "ops/delta_shape.h"
#include "ops/workspace.h"

namespace tandem::ops {

inline constexpr double kDeltaNormEpsilon = 1e-6;  // added to the square of a query's or key's length

// For each value head and each token t of a document:
//   S'_t = γ_t S_{t-1};  S_t = S'_t + k_t ⊗ β_t (v_t - S'_t^T k_t);  y_t = S_t^T q_t
// Here k is the key of the value head's key head, divided by its length |k| = sqrt(k · k +
// kDeltaNormEpsilon); q is the query of that head, divided by its length and by sqrt(Dk). β = sigmoid(b), γ =
// exp(-exp(a_log) softplus(a + dt_bias)), and S before a document is zeros.
//
// q, k: [B * S, keys()]; v, y: [B * S, values()]; ba: [B * S, 2 Hv], rows ba_stride apart; a row has, for
// each key head, the b of its value heads and then their a. dt_bias, a_log: [Hv], of the arithmetic type
// (float if E is bfloat16). states: kept() numbers, the transpose of S before the first token of each chunk
// of a sequence. The size of chunks affects only rounding.
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

// Overwrites all gradients; those of dt_bias and a_log are sums over the tokens in a fixed order. The states
// within a chunk are recomputed from the one before it. Let u_t = β_t (v_t - S'_t^T k_t), and let G_t and
// G'_t be the adjoints of S_t and S'_t:
//   G_t = γ_{t+1} G'_{t+1} + q_t ⊗ dy_t;  du_t = G_t^T k_t;  G'_t = G_t - β_t k_t ⊗ du_t
//   dq_t = S_t dy_t;  dk_t = G_t u_t - β_t S'_t du_t;  dv_t = β_t du_t
//   dβ_t = <du_t, v_t - S'_t^T k_t>;  d(log γ_t) = <G'_t, S'_t>
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
