// SPDX-License-Identifier: Apache-2.0
#include "bench/timed_operations.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "absl/strings/str_cat.h"

namespace tandem::bench {
namespace {

using at::Tensor;
using ops::AttentionShape;
using ops::Workspace;

std::string OfWeight(const char* name, const Tensor& weight) {
  return absl::StrCat(name, " [", weight.size(0), ", ", weight.size(1), "]");
}

class TimedOperations final : public ops::Operations {
 public:
  TimedOperations(const Operations& inner, CallTimer timer) : inner_(inner), timer_(timer) {}

  c10::Device device() const override { return inner_.device(); }
  const ops::SparseOperations& sparse() const override { return inner_.sparse(); }
  Tensor Constant(const Tensor& host) const override { return inner_.Constant(host); }
  void Linear(const Tensor& x, const Tensor& weight, const Tensor& residual, Tensor& y,
              Workspace work) const override {
    timer_.Time(OfWeight("Linear", weight), [&] { inner_.Linear(x, weight, residual, y, work); });
  }
  void LinearBackwardInput(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x,
                           Workspace work) const override {
    timer_.Time(OfWeight("LinearBackwardInput", weight),
                [&] { inner_.LinearBackwardInput(grad_y, weight, grad_x, work); });
  }
  void LinearBackwardWeight(const Tensor& grad_y, const Tensor& x, bool add, Tensor& grad_weight,
                            Workspace work) const override {
    timer_.Time(OfWeight("LinearBackwardWeight", grad_weight),
                [&] { inner_.LinearBackwardWeight(grad_y, x, add, grad_weight, work); });
  }
  void Embedding(const Tensor& tokens, const Tensor& weight, Tensor& output) const override {
    timer_.Time("Embedding", [&] { inner_.Embedding(tokens, weight, output); });
  }
  void EmbeddingBackward(const Tensor& tokens, const Tensor& grad_output, bool add, Tensor& grad_weight,
                         Workspace work) const override {
    timer_.Time("EmbeddingBackward",
                [&] { inner_.EmbeddingBackward(tokens, grad_output, add, grad_weight, work); });
  }
  void RmsNorm(const Tensor& x, const Tensor& weight, double epsilon, Tensor& y) const override {
    timer_.Time("RmsNorm", [&] { inner_.RmsNorm(x, weight, epsilon, y); });
  }
  void RmsNormBackward(const Tensor& grad_y, const Tensor& x, const Tensor& weight, double epsilon,
                       const Tensor& residual, bool add_x, Tensor& grad_x, bool add_weight,
                       Tensor& grad_weight, Workspace work) const override {
    timer_.Time("RmsNormBackward", [&] {
      inner_.RmsNormBackward(grad_y, x, weight, epsilon, residual, add_x, grad_x, add_weight, grad_weight,
                             work);
    });
  }
  void Rope(const Tensor& cosines, const Tensor& sines, int64_t heads, Tensor& x) const override {
    timer_.Time("Rope", [&] { inner_.Rope(cosines, sines, heads, x); });
  }
  void RopeBackward(const Tensor& cosines, const Tensor& sines, int64_t heads, Tensor& grad) const override {
    timer_.Time("RopeBackward", [&] { inner_.RopeBackward(cosines, sines, heads, grad); });
  }
  void PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const override {
    inner_.PrepareAttention(shape, element_bytes);
  }
  void Attention(const AttentionShape& shape, const Tensor& qkv, Tensor& context, Tensor& lse,
                 Workspace work) const override {
    timer_.Time("Attention", [&] { inner_.Attention(shape, qkv, context, lse, work); });
  }
  void AttentionBackward(const AttentionShape& shape, const Tensor& qkv, const Tensor& context,
                         const Tensor& lse, const Tensor& grad_context, Tensor& grad_qkv,
                         Workspace work) const override {
    timer_.Time("AttentionBackward",
                [&] { inner_.AttentionBackward(shape, qkv, context, lse, grad_context, grad_qkv, work); });
  }
  void HeadNorm(const Tensor& qkv, int64_t heads, int64_t kv_heads, const Tensor& query_weight,
                const Tensor& key_weight, double epsilon, Tensor& normed) const override {
    timer_.Time("HeadNorm",
                [&] { inner_.HeadNorm(qkv, heads, kv_heads, query_weight, key_weight, epsilon, normed); });
  }
  void HeadNormBackward(const Tensor& qkv, int64_t heads, int64_t kv_heads, const Tensor& query_weight,
                        const Tensor& key_weight, double epsilon, bool add_weights, Tensor& grad,
                        Tensor& grad_query_weight, Tensor& grad_key_weight, Workspace work) const override {
    timer_.Time("HeadNormBackward", [&] {
      inner_.HeadNormBackward(qkv, heads, kv_heads, query_weight, key_weight, epsilon, add_weights, grad,
                              grad_query_weight, grad_key_weight, work);
    });
  }
  void PackLatentHeads(const ops::LatentHeads& heads, const Tensor& query, const Tensor& key_value,
                       const Tensor& down, Tensor& qkv) const override {
    timer_.Time("PackLatentHeads", [&] { inner_.PackLatentHeads(heads, query, key_value, down, qkv); });
  }
  void UnpackLatentHeads(const ops::LatentHeads& heads, const Tensor& grad_qkv, Tensor& grad_query,
                         Tensor& grad_key_value, Tensor& grad_down) const override {
    timer_.Time("UnpackLatentHeads",
                [&] { inner_.UnpackLatentHeads(heads, grad_qkv, grad_query, grad_key_value, grad_down); });
  }
  void SwiGlu(const Tensor& gate_up, Tensor& activated) const override {
    timer_.Time("SwiGlu", [&] { inner_.SwiGlu(gate_up, activated); });
  }
  void SwiGluBackward(const Tensor& gate_up, const Tensor& grad_activated, Tensor& grad_gate_up,
                      Tensor& activated) const override {
    timer_.Time("SwiGluBackward",
                [&] { inner_.SwiGluBackward(gate_up, grad_activated, grad_gate_up, activated); });
  }
  void CrossEntropy(const Tensor& logits, const Tensor& targets, Tensor& lse, Tensor& loss,
                    Tensor& grad_logits) const override {
    timer_.Time("CrossEntropy", [&] { inner_.CrossEntropy(logits, targets, lse, loss, grad_logits); });
  }

 private:
  const Operations& inner_;
  const CallTimer timer_;
};

class TimedUnit final : public fsdp::UnitKernels {
 public:
  TimedUnit(std::unique_ptr<UnitKernels> inner, CallTimer timer) : inner_(std::move(inner)), timer_(timer) {}

  void Fold(const void* staging, void* gradients, bool add, fsdp::UnitNormTerms* terms) const override {
    timer_.Time("Fold", [&] { inner_->Fold(staging, gradients, add, terms); });
  }
  void OptimizerStep(const fsdp::OptimizerArrays& arrays, const fsdp::AdamWConfig& config) const override {
    timer_.Time("OptimizerStep", [&] { inner_->OptimizerStep(arrays, config); });
  }

 private:
  const std::unique_ptr<UnitKernels> inner_;
  const CallTimer timer_;
};

class TimedShardKernels final : public fsdp::ShardKernels {
 public:
  TimedShardKernels(const ShardKernels& inner, CallTimer timer) : inner_(inner), timer_(timer) {}

  std::unique_ptr<fsdp::UnitKernels> MakeUnit(fsdp::ShardGeometry geometry) const override {
    return std::make_unique<TimedUnit>(inner_.MakeUnit(std::move(geometry)), timer_);
  }
  std::unique_ptr<fsdp::NormKernels> MakeNorm(std::vector<const fsdp::UnitNormTerms*> units) const override {
    return inner_.MakeNorm(std::move(units));
  }

 private:
  const ShardKernels& inner_;
  const CallTimer timer_;
};

}  // namespace

std::unique_ptr<ops::Operations> MakeTimedOperations(const ops::Operations& inner, CallTimer timer) {
  return std::make_unique<TimedOperations>(inner, timer);
}

std::unique_ptr<fsdp::ShardKernels> MakeTimedShardKernels(const fsdp::ShardKernels& inner, CallTimer timer) {
  return std::make_unique<TimedShardKernels>(inner, timer);
}

}  // namespace tandem::bench
