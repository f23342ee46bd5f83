// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/attention.h"
#include "ops/causal_conv.h"
#include "ops/gated_delta.h"
#include "ops/gated_norm.h"
#include "ops/norm_gate.h"
#include "ops/output_gate.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/squared_relu.h"
#include "ops/state_scan.h"
#include "ops/swiglu.h"
#include "ops/token_gate.h"

namespace tandem::ops::cpu {

using device::Arithmetic;
using device::Bf16;

// The hand-written loops behind the operations, on raw pointers. Each exists once per instruction set
// (baseline, and on x86-64 AVX2 and AVX-512); the processor decides once which one runs.
//
// All are single-threaded, deterministic for given sizes, and keep no state. Matrices are row-major and
// contiguous.

// E is the type of elements in memory, and T that of sums, statistics and tables.
template <typename E>
struct Kernels {
  using T = Arithmetic<E>;

  void (*rms_norm)(const RmsNormArgs<E>& args);
  void (*rms_norm_backward)(const RmsNormBackwardArgs<E>& args);
  void (*rope)(const RopeArgs<E>& args);

  // For all `rows`.
  void (*swiglu)(const SwiGluArgs<E>& args);
  void (*swiglu_backward)(const SwiGluBackwardArgs<E>& args);

  void (*squared_relu)(const SquaredReluArgs<E>& args);
  void (*squared_relu_backward)(const SquaredReluBackwardArgs<E>& args);

  void (*causal_conv)(const CausalConvArgs<E>& args);
  void (*causal_conv_backward)(const CausalConvBackwardArgs<E>& args);
  void (*state_scan)(const StateScanArgs<E>& args);
  void (*state_scan_backward)(const StateScanBackwardArgs<E>& args);
  void (*gated_norm)(const GatedNormArgs<E>& args);
  void (*gated_norm_backward)(const GatedNormBackwardArgs<E>& args);

  void (*gated_delta)(const GatedDeltaArgs<E>& args);
  void (*gated_delta_backward)(const GatedDeltaBackwardArgs<E>& args);
  void (*norm_gate)(const NormGateArgs<E>& args);
  void (*norm_gate_backward)(const NormGateBackwardArgs<E>& args);

  void (*output_gate)(const OutputGateArgs<E>& args);
  void (*output_gate_backward)(const OutputGateBackwardArgs<E>& args);
  void (*token_gate)(const TokenGateArgs<E>& args);
  void (*token_gate_backward)(const TokenGateBackwardArgs<E>& args);

  // lse[t] = log(sum(exp(logits[t, :]))).
  void (*log_sum_exp)(const E* logits, int64_t rows, int64_t columns, T* lse);

  // out = exp(logits - lse[t]) * scale; may be in place.
  void (*softmax)(const E* logits, const T* lse, double scale, int64_t rows, int64_t columns, E* out);

  // y += x.
  void (*add)(const E* x, int64_t elements, E* y);

  // sum += x.
  void (*accumulate)(const E* x, int64_t elements, T* sum);

  // Convert elements to the arithmetic type and back.
  void (*widen)(const E* x, int64_t elements, T* to);
  void (*narrow)(const T* x, int64_t elements, E* to);

  void (*attention)(const AttentionArgs<E>& args);
  void (*attention_backward)(const AttentionBackwardArgs<E>& args);
};

// The kernels of the processor's widest instruction set. E is float, double or Bf16.
template <typename E>
const Kernels<E>& BestKernels();
template <>
const Kernels<float>& BestKernels();
template <>
const Kernels<double>& BestKernels();
template <>
const Kernels<Bf16>& BestKernels();

}  // namespace tandem::ops::cpu
