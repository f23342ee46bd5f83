// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ops/array.h"
#include "ops/attention_shape.h"
#include "ops/call.h"
#include "ops/norm_config.h"
#include "ops/router_config.h"
#include "ops/workspace.h"

namespace tandem::ops {

class DeviceKernels;
struct LatentHeads;
struct DeltaShape;
struct ScanShape;

// The inputs of a Mamba-2 mixer's scan (state_scan.h).
struct ScanInputs {
  Array xbc;
  Array steps;    // [tokens, heads], without their bias; rows may be apart
  Array dt_bias;  // dt_bias, a_log and d: [heads], of the arithmetic type
  Array a_log;
  Array d;
  Array documents;  // int64 [B, S], rows may be apart; if undefined, each sequence is one document
};

// The inputs of a gated delta net's recurrence (gated_delta.h).
struct DeltaInputs {
  Array q;
  Array k;
  Array v;
  Array ba;       // [tokens, 2 Hv]; rows may be apart
  Array dt_bias;  // dt_bias and a_log: [Hv], of the arithmetic type
  Array a_log;
  Array documents;  // as in ScanInputs
};

// The gradients of all of DeltaInputs but the documents.
struct DeltaGradients {
  Array q;
  Array k;
  Array v;
  Array ba;
  Array dt_bias;
  Array a_log;
};

// An array in memory of its own on the device of the operations.
struct Constant {
  std::shared_ptr<const void> memory;
  Array array;
};

// The forward and backward operations on one kind of device. Each function binds an operation to memory: it
// checks the operands, throws std::invalid_argument with the name of one that does not fit, makes the struct
// of the arguments (such as rms_norm.h, which says what is computed), and returns the call that runs the
// device's kernel on these any number of times, on the stream that is current then (call.h says when it may
// be captured). Operands are contiguous unless the struct says otherwise. Their owner must not move or free
// the memory as long as the call exists. What changes from step to step is read from that memory. The same
// inputs give the same bits on the same kind of device, except attention with AttentionShape::repeats ==
// false. Thread-safe.
//
// Elements are float, double or bfloat16. With bfloat16, sums, statistics and exponentials are computed in
// float and results are rounded once; lse, tables and the grad_weight of a norm are float.
//
// `work` has at least the size for the device that the comment of the struct's `work` names, such as
// RmsNormBackwardWorkBytes (row_work.h).
class Operations {
 public:
  // `kernels` must outlive this object.
  explicit Operations(const DeviceKernels& kernels) : kernels_(kernels) {}

  DeviceKind kind() const;

  // A digest of everything, except an operation's arguments, that decides which kernels run. Ranks of one job
  // must have the same digest. SHA-256 in hexadecimal; empty on the CPU.
  std::string kernels_digest() const;
  const DeviceKernels& kernels() const { return kernels_; }

  // Copies a host array to memory that these operations can read. Blocks.
  Constant MakeConstant(const Array& host) const;

  // to = from, both of one shape, rounded to the type of `to`; columns are adjacent. One of the two may be on
  // the host. Then both are contiguous and of one type and, for a GPU, the host's memory is pinned.
  Call Copy(const Array& from, const Array& to) const;
  // to += from, in the type of both, rounded once.
  Call Add(const Array& from, const Array& to) const;
  // Sets every byte of `to`.
  Call Fill(uint8_t byte, const Array& to) const;

  // Matrix products of 2-D views whose columns are adjacent. Operands and output have the same type, except
  // that bfloat16 operands may have a float output; otherwise std::invalid_argument names the types. The
  // output is written in place, or added to if `add`: a weight gradient goes directly into the contribution,
  // without a copy. The bits depend only on shapes and types, not on addresses, if these are multiples of 64
  // bytes (for MKL; 16 on a GPU).
  //
  // y = residual + factor x W^T. x: [T, I], W: [O, I], y: [T, O]; residual, if defined: the shape and type of
  // y, contiguous.
  Call Linear(const Array& x, const Array& weight, const Array& residual, const Array& y, Workspace work,
              double factor = 1) const;
  // grad_x (+)= factor grad_y W.
  Call LinearBackwardInput(const Array& grad_y, const Array& weight, bool add, const Array& grad_x,
                           Workspace work, double factor = 1) const;
  // grad_weight (+)= factor grad_y^T x.
  Call LinearBackwardWeight(const Array& grad_y, const Array& x, bool add, const Array& grad_weight,
                            Workspace work, double factor = 1) const;

  // tokens, targets: int64 [B, S], rows may be apart.
  Call Embedding(const Array& tokens, const Array& weight, const Array& output, double factor = 1) const;
  Call EmbeddingBackward(const Array& tokens, const Array& grad_output, bool add, const Array& grad_weight,
                         Workspace work, double factor = 1) const;

  Call RmsNorm(const Array& x, const Array& weight, const NormConfig& norm, const Array& y) const;
  Call RmsNormBackward(const Array& grad_y, const Array& x, const Array& weight, const NormConfig& norm,
                       const Array& residual, bool add_x, const Array& grad_x, bool add_weight,
                       const Array& grad_weight, Workspace work) const;

  // `sign` is 1, or -1 for the backward.
  Call Rope(const Array& cosines, const Array& sines, int64_t heads, int64_t head_dim, const Array& x,
            int sign = 1) const;
  Call RopeBackward(const Array& cosines, const Array& sines, int64_t heads, int64_t head_dim,
                    const Array& grad) const {
    return Rope(cosines, sines, heads, head_dim, grad, /*sign=*/-1);
  }

  // Chooses the kernels of this shape for the current device, so that the first call of Attention and
  // AttentionBackward need not. Throws if there are none, or if they need more work memory than
  // attention_work.h says.
  void PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const;
  // `documents` is int64 [B, S], rows may be apart: the first row of each row's document (DocumentStarts).
  // Undefined if the shape has no documents.
  Call Attention(const AttentionShape& shape, const Array& qkv, const Array& documents, const Array& context,
                 const Array& lse, Workspace work) const;
  Call AttentionBackward(const AttentionShape& shape, const Array& qkv, const Array& documents,
                         const Array& context, const Array& lse, const Array& grad_context,
                         const Array& grad_qkv, Workspace work) const;

  // Overwrites `starts`, int64 [B, S], which Attention then reads as documents.
  Call WindowStarts(int64_t window, const Array& documents, const Array& starts) const;

  Call HeadNorm(const Array& qkv, int64_t heads, int64_t kv_heads, const Array& query_weight,
                const Array& key_weight, const NormConfig& norm, const Array& normed) const;
  // grad_qkv is defined if qkv has gates; otherwise `grad` becomes the gradient of qkv.
  Call HeadNormBackward(const Array& qkv, int64_t heads, int64_t kv_heads, const Array& query_weight,
                        const Array& key_weight, const NormConfig& norm, bool add_weights, const Array& grad,
                        const Array& grad_query_weight, const Array& grad_key_weight, Workspace work,
                        const Array& grad_qkv = {}) const;

  // Rows of qkv may be apart; grad_qkv has the same row stride.
  Call OutputGate(const Array& context, const Array& qkv, int64_t heads, const Array& gated) const;
  Call OutputGateBackward(const Array& grad_gated, const Array& context, const Array& qkv, int64_t heads,
                          const Array& gated, const Array& grad_context, const Array& grad_qkv) const;

  // gates, grad_gates: [rows], of the arithmetic type. An undefined grad_weight is not computed.
  Call TokenGate(const Array& x, const Array& weight, const Array& gates) const;
  Call TokenGateBackward(const Array& grad_gates, const Array& x, const Array& weight, const Array& gates,
                         const Array& grad_x, bool add_weight, const Array& grad_weight,
                         Workspace work) const;

  // With undefined biases of keys and values there is one bias for all columns.
  Call QkvBias(const Array& query_bias, const Array& key_bias, const Array& value_bias,
               const Array& qkv) const;
  Call QkvBiasBackward(const Array& grad_qkv, bool add, const Array& grad_query_bias,
                       const Array& grad_key_bias, const Array& grad_value_bias, Workspace work) const;
  // rows += bias, for each row; grad_bias (+)= the sum of the rows of grad, added as in QkvBiasBackward.
  Call Bias(const Array& bias, const Array& rows) const { return QkvBias(bias, {}, {}, rows); }
  Call BiasBackward(const Array& grad, bool add, const Array& grad_bias, Workspace work) const {
    return QkvBiasBackward(grad, add, grad_bias, {}, {}, work);
  }

  Call PackLatentHeads(const LatentHeads& heads, const Array& query, const Array& key_value,
                       const Array& down, const Array& qkv) const;
  Call UnpackLatentHeads(const LatentHeads& heads, const Array& grad_qkv, const Array& grad_query,
                         const Array& grad_key_value, const Array& grad_down) const;

  // weights: [rows], of the arithmetic type. `begins` are those of PlanWindow and need weights: only the rows
  // that they count are computed.
  Call SwiGlu(const Array& gate_up, const Array& activated, const Array& weights = {},
              const Array& begins = {}) const;
  Call SwiGluBackward(const Array& gate_up, const Array& grad_activated, const Array& grad_gate_up,
                      const Array& activated, const Array& weights = {}, const Array& grad_weights = {},
                      const Array& begins = {}) const;

  Call SquaredRelu(const Array& up, const Array& activated) const;
  Call SquaredReluBackward(const Array& up, const Array& grad_activated, const Array& grad_up,
                           const Array& activated) const;

  // The operations of a Mamba-2 mixer (causal_conv.h, state_scan.h, gated_norm.h). Rows of x, the gate and
  // their gradients may be apart. `documents` is as in ScanInputs. If a convolution has no bias, bias and
  // gradient are undefined.
  Call CausalConv(int64_t sequences, const Array& x, const Array& documents, const Array& weight,
                  const Array& bias, const Array& y) const;
  Call CausalConvBackward(int64_t sequences, const Array& x, const Array& documents, const Array& weight,
                          const Array& bias, const Array& grad_y, const Array& grad_x,
                          const Array& grad_weight, const Array& grad_bias, Workspace work) const;
  Call StateScan(const ScanShape& shape, const ScanInputs& in, const Array& y, const Array& states,
                 Workspace work) const;
  Call StateScanBackward(const ScanShape& shape, const ScanInputs& in, const Array& states,
                         const Array& grad_y, const Array& grad_xbc, const Array& grad_steps,
                         const Array& grad_dt_bias, const Array& grad_a_log, const Array& grad_d,
                         Workspace work) const;
  Call GatedNorm(const Array& y, const Array& gate, const Array& weight, int64_t groups, double epsilon,
                 const Array& normed) const;
  Call GatedNormBackward(const Array& grad_normed, const Array& y, const Array& gate, const Array& weight,
                         int64_t groups, double epsilon, const Array& grad_y, const Array& grad_gate,
                         const Array& grad_weight, Workspace work) const;

  // The operations of a gated delta net (gated_delta.h, norm_gate.h); CausalConv is its convolution. Rows of
  // gates may be apart.
  Call GatedDelta(const DeltaShape& shape, const DeltaInputs& in, const Array& y, const Array& states,
                  Workspace work) const;
  Call GatedDeltaBackward(const DeltaShape& shape, const DeltaInputs& in, const Array& states,
                          const Array& grad_y, const DeltaGradients& out, Workspace work) const;
  Call NormGate(const Array& y, const Array& gate, const Array& weight, double epsilon,
                const Array& gated) const;
  Call NormGateBackward(const Array& grad_gated, const Array& y, const Array& gate, const Array& weight,
                        double epsilon, const Array& grad_y, const Array& grad_gate, const Array& grad_weight,
                        Workspace work) const;

  Call CrossEntropy(const Array& logits, const Array& targets, const Array& lse, const Array& loss,
                    const Array& grad_logits, double weight = 1) const;
  Call CrossEntropyChunk(const Array& logits, const Array& targets, int64_t first, const Array& lse,
                         const Array& loss, const Array& grad_logits, double weight = 1) const;

  // The operations of sparse layers (router.h, router_losses.h, capacity.h, permute.h, sends.h,
  // grouped_linear.h). Arrays of indices and rows, and the counts of PlanRows, PlanWindow and PlanSends, are
  // int64; other counts are double. The number of rows of each expert is read on the GPU, so the host never
  // waits for it. An index outside its range throws std::out_of_range on the CPU and counts as -1 on a GPU,
  // except that `ranked` must be as Route chose.
  //
  // An undefined `bias` counts as zeros.
  Call Route(const RouterConfig& config, const Array& logits, const Array& bias, const Array& chosen,
             const Array& probabilities) const;
  Call RouteBackward(const RouterConfig& config, const Array& logits, const Array& ranked,
                     const Array& chosen, const Array& grad_probabilities, const Array& grad_logits) const;
  Call CountTokens(const Array& chosen, const Array& tokens, const Array& dropped) const;
  Call UpdateRouterBias(const Array& tokens, const Array& applies, double rate, const Array& bias) const;

  // If `counts` is undefined, n_e is counted for each sequence. targets: int64 [B, S]; if undefined, all
  // count.
  Call RouterLosses(const RouterConfig& config, const RouterLossConfig& losses, const Array& logits,
                    const Array& counts, const Array& values, Workspace work) const;
  Call RouterLossesBackward(const RouterConfig& config, const RouterLossConfig& losses, const Array& logits,
                            const Array& counts, const Array& targets, const Array& grad_logits,
                            Workspace work) const;
  Call CountLargest(const RouterConfig& config, const Array& logits, const Array& counts) const;
  // If `seen` is undefined, nothing is carried over.
  Call MeanCounts(const Array& by_rank, int64_t slots, bool continues, const Array& seen,
                  const Array& counts) const;

  Call DropOverflow(DropPolicy policy, int64_t capacity, int64_t experts, const Array& ranked,
                    const Array& chosen, const Array& probabilities, Workspace work) const;

  Call PlanRows(const Array& chosen, int64_t chunk, const Array& counts, const Array& row_of,
                Workspace work) const;
  // The call returns false if it is known without waiting that there are no rows.
  std::function<bool()> PlanWindow(const Array& counts, int64_t first, int64_t rows,
                                   const Array& begins) const;
  // `begins` are those of PlanWindow for these rows, or undefined. With them a GPU skips the tokens if the
  // window has no rows; the result is the same.
  Call Permute(const Array& tokens, const Array& row_of, int64_t first, const Array& rows,
               const Array& begins = {}) const;
  Call Unpermute(const Array& rows, const Array& row_of, int64_t first, bool add, const Array& tokens,
                 const Array& begins = {}) const;

  Call PlanSends(const Array& chosen, int64_t experts_of_a_rank, int64_t chunk, const Array& counts,
                 const Array& place, Workspace work) const;
  Call SendSlots(const Array& chosen, const Array& probabilities, const Array& place,
                 int64_t experts_of_a_rank, const Array& slots, const Array& row_probabilities) const;
  Call CollectSlots(const Array& row_probabilities, const Array& chosen, const Array& place,
                    int64_t experts_of_a_rank, bool add, const Array& probabilities) const;

  // `begins` are on the device; on a GPU they may also be on the host.
  Call GroupedLinear(const Array& begins, const Array& x, const Array& weight, const Array& y,
                     Workspace work) const;
  Call GroupedLinearBackwardInput(const Array& begins, const Array& grad_y, const Array& weight,
                                  const Array& grad_x, Workspace work) const;
  Call GroupedLinearBackwardWeight(const Array& begins, const Array& grad_y, const Array& x, bool add,
                                   const Array& grad_weight, Workspace work) const;

 private:
  const DeviceKernels& kernels_;
};

const Operations& CpuOperations();

}  // namespace tandem::ops
