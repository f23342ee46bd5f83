// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "ops/attention_shape.h"
#include "ops/sparse_operations.h"
#include "ops/workspace.h"

namespace at {
class Tensor;
}
namespace c10 {
struct Device;
}

namespace tandem::ops {

class DeviceKernels;
struct LatentHeads;

// The forward and backward pairs on one kind of device. Each function checks its operands, throws c10::Error
// naming the operand that does not fit, and runs the device's kernel. The struct of its arguments
// (rms_norm.h, for example) says what it computes; operands are contiguous unless that says otherwise. On a
// GPU it launches kernels on the current stream and returns. The same inputs give the same bits on the same
// kind of device, except attention with AttentionShape::repeats == false. Thread-safe.
//
// Elements are float, double or bfloat16. With bfloat16, sums, statistics and exponentials are computed in
// float and results are rounded once; lse, tables and the grad_weight of a norm are float.
//
// `work`: at least what linear_work.h, row_work.h and attention_work.h say for the device.
class Operations {
 public:
  // `kernels` must outlive this object.
  explicit Operations(const DeviceKernels& kernels) : kernels_(kernels), sparse_(kernels) {}

  // The device of the operations' tensors: the current device of its kind.
  c10::Device device() const;

  // A digest of everything, except an operation's arguments, that decides which kernels run. Ranks of one job
  // must have the same. SHA-256, hex; empty on the CPU.
  std::string kernels_digest() const;
  const DeviceKernels& kernels() const { return kernels_; }
  // The operations of sparse layers.
  const SparseOperations& sparse() const { return sparse_; }

  // A copy of a host tensor in memory that these operations can read. Blocks.
  at::Tensor Constant(const at::Tensor& host) const;

  // Matrix products of 2-D views whose columns are adjacent. Operands and output have the same type, except
  // that bfloat16 operands may have a float output; otherwise c10::Error names the types. The output is
  // written in place, or added to if `add`: a weight gradient goes directly into the contribution, without a
  // copy. The bits depend only on shapes and types, not on addresses, if these are multiples of 64 bytes (for
  // MKL; 16 on a GPU).
  //
  // y = residual + x W^T. x: [T, I], W: [O, I], y: [T, O]; residual: the shape and type of y, contiguous;
  // undefined: none.
  void Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& residual, at::Tensor& y,
              Workspace work) const;
  // grad_x (+)= grad_y W.
  void LinearBackwardInput(const at::Tensor& grad_y, const at::Tensor& weight, bool add, at::Tensor& grad_x,
                           Workspace work) const;
  // grad_weight (+)= grad_y^T x.
  void LinearBackwardWeight(const at::Tensor& grad_y, const at::Tensor& x, bool add, at::Tensor& grad_weight,
                            Workspace work) const;

  // tokens, targets: int64 [B, S], rows may be apart.
  void Embedding(const at::Tensor& tokens, const at::Tensor& weight, at::Tensor& output) const;
  void EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& grad_output, bool add,
                         at::Tensor& grad_weight, Workspace work) const;

  void RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::Tensor& y) const;
  void RmsNormBackward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& weight,
                       double epsilon, const at::Tensor& residual, bool add_x, at::Tensor& grad_x,
                       bool add_weight, at::Tensor& grad_weight, Workspace work) const;

  // sign: 1, or -1 for the backward.
  void Rope(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, at::Tensor& x,
            int sign = 1) const;
  void RopeBackward(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads,
                    at::Tensor& grad) const {
    Rope(cosines, sines, heads, grad, /*sign=*/-1);
  }

  // Chooses the kernels of this shape for the current device, which the first call of Attention and
  // AttentionBackward would otherwise do. Throws c10::Error if there are none, or if they need more work
  // memory than attention_work.h says.
  void PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const;
  // documents: int64 [B, S], rows may be apart: the first row of each row's document (DocumentStarts).
  // Undefined if the shape has no documents.
  void Attention(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& documents,
                 at::Tensor& context, at::Tensor& lse, Workspace work) const;
  void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& documents,
                         const at::Tensor& context, const at::Tensor& lse, const at::Tensor& grad_context,
                         at::Tensor& grad_qkv, Workspace work) const;

  void HeadNorm(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& query_weight,
                const at::Tensor& key_weight, double epsilon, at::Tensor& normed) const;
  void HeadNormBackward(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                        const at::Tensor& query_weight, const at::Tensor& key_weight, double epsilon,
                        bool add_weights, at::Tensor& grad, at::Tensor& grad_query_weight,
                        at::Tensor& grad_key_weight, Workspace work) const;

  void PackLatentHeads(const LatentHeads& heads, const at::Tensor& query, const at::Tensor& key_value,
                       const at::Tensor& down, at::Tensor& qkv) const;
  void UnpackLatentHeads(const LatentHeads& heads, const at::Tensor& grad_qkv, at::Tensor& grad_query,
                         at::Tensor& grad_key_value, at::Tensor& grad_down) const;

  void SwiGlu(const at::Tensor& gate_up, at::Tensor& activated) const;
  void SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                      at::Tensor& activated) const;

  void CrossEntropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse, at::Tensor& loss,
                    at::Tensor& grad_logits) const;
  void CrossEntropyChunk(const at::Tensor& logits, const at::Tensor& targets, int64_t first, at::Tensor& lse,
                         at::Tensor& loss, at::Tensor& grad_logits) const;

 private:
  const DeviceKernels& kernels_;
  const SparseOperations sparse_;
};

const Operations& CpuOperations();

}  // namespace tandem::ops
