#pragma once

#include <cstdint>

namespace tandem::ops::cpu {

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

template <typename T>
struct Kernels {
  // y = x / rms(x) * weight, rows of `columns`.
  void (*rms_norm)(const T* x, const T* weight, double epsilon, int64_t rows, int64_t columns, T* y);

  // grad_x (+)= residual + gradient of the norm; residual may be null. grad_weight (+)=.
  void (*rms_norm_backward)(const T* grad_y, const T* x, const T* weight, double epsilon, int64_t rows,
                            int64_t columns, const T* residual, bool add_x, T* grad_x, bool add_weight,
                            T* grad_weight);

  // In place. Row t has position t % length; tables are [length, head_dim / 2]. sign: -1 rotates back.
  void (*rope)(const T* cosines, const T* sines, T sign, int64_t rows, int64_t length, int64_t heads,
               int64_t head_dim, int64_t row_stride, T* x);

  // activated[t, i] = silu(gate_up[t, i]) * gate_up[t, inner + i].
  void (*swiglu)(const T* gate_up, int64_t rows, int64_t inner, T* activated);

  // Also recomputes `activated`, which may be the memory of grad_activated.
  void (*swiglu_backward)(const T* gate_up, const T* grad_activated, int64_t rows, int64_t inner,
                          T* grad_gate_up, T* activated);

  // lse[t] = log(sum(exp(logits[t, :]))).
  void (*log_sum_exp)(const T* logits, int64_t rows, int64_t columns, T* lse);

  // out = exp(logits - lse[t]) * scale; may be in place.
  void (*softmax)(const T* logits, const T* lse, double scale, int64_t rows, int64_t columns, T* out);

  // y += x.
  void (*add)(const T* x, int64_t elements, T* y);

  // work: AttentionWorkElements. context: [B * S, heads * head_dim]; lse: [B, heads, S].
  void (*attention)(const AttentionSizes& sizes, const T* qkv, T* context, T* lse, T* work);

  // work: AttentionBackwardWorkElements.
  void (*attention_backward)(const AttentionSizes& sizes, const T* qkv, const T* context, const T* lse,
                             const T* grad_context, T* grad_qkv, T* work);
};

// Those of the widest instruction set that the processor has. T: float, double.
template <typename T>
const Kernels<T>& BestKernels();

}  // namespace tandem::ops::cpu
