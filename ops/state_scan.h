// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/attention_shape.h"
#include "ops/scan_shape.h"
#include "ops/workspace.h"

namespace tandem::ops {

// For each head h of a Mamba-2 mixer and token t of a document, with dt = max(softplus(raw + dt_bias),
// least_step) and A = -exp(a_log):
//   S_t = exp(dt_t A) S_{t-1} + dt_t x_t ⊗ B_t;  y_t = S_t C_t + d x_t;  S before a document is zeros.
// xbc: [B * S, channels()]; raw: [B * S, heads], rows raw_stride apart; dt_bias, a_log, d: [heads], of the
// arithmetic type (float if E is bfloat16). y: [B * S, inner()]. states: kept() numbers, S before the first
// token of each chunk of a sequence. The size of chunks affects only rounding.
template <typename E>
struct StateScanInputs {
  ScanShape shape;
  DocumentStarts documents;  // null: each sequence is one document
  const E* xbc;
  const E* raw;
  int64_t raw_stride;
  const device::Arithmetic<E>* dt_bias;
  const device::Arithmetic<E>* a_log;
  const device::Arithmetic<E>* d;
};
template <typename E>
struct StateScanArgs : StateScanInputs<E> {
  static constexpr const char* kName = "StateScan";
  E* y;
  device::Arithmetic<E>* states;
  Workspace work;  // of StateScanWorkBytes (mixer_work.h)
};

// Overwrites grad_xbc, grad_raw (rows grad_raw_stride apart), grad_dt_bias, grad_a_log and grad_d. The last
// three are sums over the tokens in a fixed order. The states within a chunk are recomputed from the one
// before it. With the adjoint G_t = dy_t ⊗ C_t + exp(dt_{t+1} A) G_{t+1}:
//   dC_t = S_t^T dy_t;  dB_t = dt_t G_t^T x_t, both summed over the heads of a group
//   dx_t = dt_t G_t B_t + d dy_t;  d(dt_t) = <G_t, x_t ⊗ B_t> + A exp(dt_t A) <G_t, S_{t-1}>
//   dA = sum_t dt_t exp(dt_t A) <G_t, S_{t-1}>
template <typename E>
struct StateScanBackwardArgs : StateScanInputs<E> {
  static constexpr const char* kName = "StateScanBackward";
  const device::Arithmetic<E>* states;
  const E* grad_y;
  E* grad_xbc;
  E* grad_raw;
  int64_t grad_raw_stride;
  device::Arithmetic<E>* grad_dt_bias;
  device::Arithmetic<E>* grad_a_log;
  device::Arithmetic<E>* grad_d;
  Workspace work;  // of StateScanBackwardWorkBytes
};

}  // namespace tandem::ops
