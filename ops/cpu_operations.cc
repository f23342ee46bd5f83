// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/head_norm.h"
#include "ops/latent_heads.h"
#include "ops/linear.h"
#include "ops/operations.h"
#include "ops/residual_add.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/sparse_operations.h"
#include "ops/swiglu.h"
#include "ops/tiled_product.h"

namespace tandem::ops {
namespace {

class Cpu final : public Operations {
 public:
  c10::Device device() const override { return c10::Device(c10::kCPU); }
  const SparseOperations& sparse() const override { return CpuSparseOperations(); }
  at::Tensor Constant(const at::Tensor& host) const override { return host; }

  void Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& residual, at::Tensor& y,
              Workspace work) const override {
    Product(x, weight.t(), /*add=*/false, y, work);
    if (residual.defined()) {
      ResidualAdd(residual, y);
    }
  }
  void LinearBackwardInput(const at::Tensor& grad_y, const at::Tensor& weight, at::Tensor& grad_x,
                           Workspace work) const override {
    Product(grad_y, weight, /*add=*/false, grad_x, work);
  }
  void LinearBackwardWeight(const at::Tensor& grad_y, const at::Tensor& x, bool add, at::Tensor& grad_weight,
                            Workspace work) const override {
    Product(grad_y.t(), x, add, grad_weight, work);
  }
  void Embedding(const at::Tensor& tokens, const at::Tensor& weight, at::Tensor& output) const override {
    ops::Embedding(tokens, weight, output);
  }
  void EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& grad_output, bool add,
                         at::Tensor& grad_weight, Workspace) const override {
    ops::EmbeddingBackward(tokens, grad_output, add, grad_weight);
  }
  void RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::Tensor& y) const override {
    ops::RmsNorm(x, weight, epsilon, y);
  }
  void RmsNormBackward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& weight,
                       double epsilon, const at::Tensor& residual, bool add_x, at::Tensor& grad_x,
                       bool add_weight, at::Tensor& grad_weight, Workspace) const override {
    ops::RmsNormBackward(grad_y, x, weight, epsilon, residual, add_x, grad_x, add_weight, grad_weight);
  }
  void Rope(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, at::Tensor& x) const override {
    ops::Rope(cosines, sines, heads, x);
  }
  void RopeBackward(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads,
                    at::Tensor& grad) const override {
    ops::RopeBackward(cosines, sines, heads, grad);
  }
  void PrepareAttention(const AttentionShape&, int64_t) const override {}
  void Attention(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& context, at::Tensor& lse,
                 Workspace work) const override {
    ops::Attention(shape, qkv, context, lse, work);
  }
  void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                         const at::Tensor& lse, const at::Tensor& grad_context, at::Tensor& grad_qkv,
                         Workspace work) const override {
    ops::AttentionBackward(shape, qkv, context, lse, grad_context, grad_qkv, work);
  }
  void HeadNorm(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& query_weight,
                const at::Tensor& key_weight, double epsilon, at::Tensor& normed) const override {
    ops::HeadNorm(qkv, heads, kv_heads, query_weight, key_weight, epsilon, normed);
  }
  void HeadNormBackward(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                        const at::Tensor& query_weight, const at::Tensor& key_weight, double epsilon,
                        bool add_weights, at::Tensor& grad, at::Tensor& grad_query_weight,
                        at::Tensor& grad_key_weight, Workspace) const override {
    ops::HeadNormBackward(qkv, heads, kv_heads, query_weight, key_weight, epsilon, add_weights, grad,
                          grad_query_weight, grad_key_weight);
  }
  void PackLatentHeads(const LatentHeads& heads, const at::Tensor& query, const at::Tensor& key_value,
                       const at::Tensor& down, at::Tensor& qkv) const override {
    ops::PackLatentHeads(heads, query, key_value, down, qkv);
  }
  void UnpackLatentHeads(const LatentHeads& heads, const at::Tensor& grad_qkv, at::Tensor& grad_query,
                         at::Tensor& grad_key_value, at::Tensor& grad_down) const override {
    ops::UnpackLatentHeads(heads, grad_qkv, grad_query, grad_key_value, grad_down);
  }
  void SwiGlu(const at::Tensor& gate_up, at::Tensor& activated) const override {
    ops::SwiGlu(gate_up, activated);
  }
  void SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                      at::Tensor& activated) const override {
    ops::SwiGluBackward(gate_up, grad_activated, grad_gate_up, activated);
  }
  void CrossEntropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse, at::Tensor& loss,
                    at::Tensor& grad_logits) const override {
    ops::CrossEntropy(logits, targets, lse, loss);
    ops::CrossEntropyBackward(logits, targets, lse, grad_logits);
  }

 private:
  static void Product(const at::Tensor& a, const at::Tensor& b, bool add, at::Tensor& output,
                      Workspace work) {
    if (a.scalar_type() == at::kBFloat16) {
      MultiplyInTiles(a, b, add, output, work);
    } else {
      Multiply(a, b, add, output);
    }
  }
};

}  // namespace

const Operations& CpuOperations() {
  static const Cpu operations;
  return operations;
}

}  // namespace tandem::ops
