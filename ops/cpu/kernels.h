// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"

namespace tandem::ops::cpu {

using device::Arithmetic;
using device::Bf16;

// The hand-written loops behind the operations, on raw pointers. Each exists once per instruction set
// (baseline, and on x86-64 AVX2 and AVX-512); the processor decides once which one runs.
//
// All are single-threaded, deterministic for given sizes, and keep no state. Matrices are row-major; "row
// stride" is in elements; matrices without one are contiguous.

// q, k and v are the columns of one matrix [B * S, (heads + 2 * kv_heads) * head_dim].
struct AttentionSizes {
  int64_t sequences = 0;  // B
  int64_t length = 0;     // S
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

// E: the elements in memory. Sums, statistics and tables are of T.
template <typename E>
struct Kernels {
  using T = Arithmetic<E>;

  // y = x / rms(x) * weight, rows of `columns`.
  void (*rms_norm)(const E* x, const E* weight, double epsilon, int64_t rows, int64_t columns, E* y);

  // grad_x (+)= residual + gradient of the norm; residual may be null. grad_weight (+)=.
  void (*rms_norm_backward)(const E* grad_y, const E* x, const E* weight, double epsilon, int64_t rows,
                            int64_t columns, const E* residual, bool add_x, E* grad_x, bool add_weight,
                            T* grad_weight);

  // In place. Row t has position t % length; tables are [length, head_dim / 2]. sign: -1 rotates back.
  void (*rope)(const T* cosines, const T* sines, T sign, int64_t rows, int64_t length, int64_t heads,
               int64_t head_dim, int64_t row_stride, E* x);

  // activated[t, i] = silu(gate_up[t, i]) * gate_up[t, inner + i] * weights[t]; null weights are ones.
  void (*swiglu)(const E* gate_up, const T* weights, int64_t rows, int64_t inner, E* activated);

  // Also recomputes `activated`, which may be the memory of grad_activated. grad_weights: [rows], or null.
  void (*swiglu_backward)(const E* gate_up, const T* weights, const E* grad_activated, int64_t rows,
                          int64_t inner, E* grad_gate_up, E* activated, T* grad_weights);

  // lse[t] = log(sum(exp(logits[t, :]))).
  void (*log_sum_exp)(const E* logits, int64_t rows, int64_t columns, T* lse);

  // out = exp(logits - lse[t]) * scale; may be in place.
  void (*softmax)(const E* logits, const T* lse, double scale, int64_t rows, int64_t columns, E* out);

  // y += x.
  void (*add)(const E* x, int64_t elements, E* y);

  // sum += x.
  void (*accumulate)(const E* x, int64_t elements, T* sum);

  // to = x, from elements to what is computed in and back.
  void (*widen)(const E* x, int64_t elements, T* to);
  void (*narrow)(const T* x, int64_t elements, E* to);

  // work: AttentionWorkElements. context: [B * S, heads * head_dim]; lse: [B, heads, S].
  void (*attention)(const AttentionSizes& sizes, const E* qkv, E* context, T* lse, T* work);

  // work: AttentionBackwardWorkElements.
  void (*attention_backward)(const AttentionSizes& sizes, const E* qkv, const E* context, const T* lse,
                             const E* grad_context, E* grad_qkv, T* work);
};

// Those of the widest instruction set that the processor has. E: float, double, Bf16.
template <typename E>
const Kernels<E>& BestKernels();
template <>
const Kernels<float>& BestKernels();
template <>
const Kernels<double>& BestKernels();
template <>
const Kernels<Bf16>& BestKernels();

}  // namespace tandem::ops::cpu
