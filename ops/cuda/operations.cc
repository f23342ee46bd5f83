// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/operations.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include "ops/attention_work.h"
#include "ops/cuda/blocked_attention.h"
#include "ops/cuda/flash_attention.h"
#include "ops/cuda/head_kernels.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/matrix_product.h"
#include "ops/row_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

constexpr DeviceKind kGpu = DeviceKind::kGpu;

void CheckLaunch(int error, const char* operation) {
  TORCH_CHECK(error == 0, operation, ": the kernel did not start, CUDA error ", error);
}

cuda::Stream Current() { return c10::cuda::getCurrentCUDAStream().stream(); }

cuda::Tokens TokensOf(const at::Tensor& tokens) {
  CheckTokens(tokens, kGpu);
  return {tokens.const_data_ptr<int64_t>(), tokens.size(0), tokens.size(1), tokens.stride(0)};
}

void Rotate(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, int sign, at::Tensor& x) {
  const int64_t length = cosines.size(0);
  const int64_t head_dim = 2 * cosines.size(1);
  CheckRotation(cosines, sines, heads, x, kGpu);
  WithElementType(x, [&]<typename E>(E) {
    CheckLaunch(
        cuda::Rope(ElementsOf<Arithmetic<E>>(cosines), ElementsOf<Arithmetic<E>>(sines), sign, x.size(0),
                   length, heads, head_dim, x.stride(0), MutableElementsOf<E>(x), Current()),
        "Rope");
  });
}

class Cuda final : public Operations {
 public:
  c10::Device device() const override { return {at::kCUDA, c10::cuda::current_device()}; }

  std::string kernels_digest() const override { return cuda::MatrixProduct::Digest(); }
  const SparseOperations& sparse() const override { return CudaSparseOperations(); }

  at::Tensor Constant(const at::Tensor& host) const override {
    return host.to(host.options().device(device()));
  }

  void Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& residual, at::Tensor& y,
              Workspace work) const override {
    product_.Multiply(x, weight.t(), residual, y, work, Current());
  }
  void LinearBackwardInput(const at::Tensor& grad_y, const at::Tensor& weight, bool add, at::Tensor& grad_x,
                           Workspace work) const override {
    product_.Multiply(grad_y, weight, add ? grad_x : at::Tensor(), grad_x, work, Current());
  }
  void LinearBackwardWeight(const at::Tensor& grad_y, const at::Tensor& x, bool add, at::Tensor& grad_weight,
                            Workspace work) const override {
    product_.Multiply(grad_y.t(), x, add ? grad_weight : at::Tensor(), grad_weight, work, Current());
  }

  void Embedding(const at::Tensor& tokens, const at::Tensor& weight, at::Tensor& output) const override {
    const cuda::Tokens ids = TokensOf(tokens);
    CheckMatrix("weight", weight, weight.size(0), weight.size(1), kGpu);
    CheckMatrix("output", output, tokens.numel(), weight.size(1), kGpu);
    WithElementType(weight, [&]<typename E>(E) {
      CheckLaunch(cuda::Embedding(ids, ElementsOf<E>(weight), weight.size(0), weight.size(1),
                                  MutableElementsOf<E>(output), Current()),
                  "Embedding");
    });
  }

  void EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& grad_output, bool add,
                         at::Tensor& grad_weight, Workspace work) const override {
    const cuda::Tokens ids = TokensOf(tokens);
    CheckWork("EmbeddingBackward", work, EmbeddingBackwardWorkBytes(kGpu, tokens.numel()));
    CheckMatrix("grad_weight", grad_weight, grad_weight.size(0), grad_weight.size(1), kGpu);
    CheckMatrix("grad_output", grad_output, tokens.numel(), grad_weight.size(1), kGpu);
    WithElementType(grad_output, [&]<typename E>(E) {
      const auto launch = [&](auto* sums) {
        CheckLaunch(cuda::EmbeddingBackward(ids, ElementsOf<E>(grad_output), add, grad_weight.size(0),
                                            grad_weight.size(1), sums, work, Current()),
                    "EmbeddingBackward");
      };
      if (grad_weight.scalar_type() == grad_output.scalar_type()) {
        launch(MutableElementsOf<E>(grad_weight));
      } else {
        launch(MutableElementsOf<Arithmetic<E>>(grad_weight));
      }
    });
  }

  void RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::Tensor& y) const override {
    const int64_t rows = x.size(0);
    const int64_t columns = weight.numel();
    CheckElements("weight", weight, columns, kGpu);
    CheckMatrix("x", x, rows, columns, kGpu);
    CheckMatrix("y", y, rows, columns, kGpu);
    WithElementType(x, [&]<typename E>(E) {
      CheckLaunch(cuda::RmsNorm(ElementsOf<E>(x), ElementsOf<E>(weight), epsilon, rows, columns,
                                MutableElementsOf<E>(y), Current()),
                  "RmsNorm");
    });
  }

  void RmsNormBackward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& weight,
                       double epsilon, const at::Tensor& residual, bool add_x, at::Tensor& grad_x,
                       bool add_weight, at::Tensor& grad_weight, Workspace work) const override {
    const int64_t rows = x.size(0);
    const int64_t columns = weight.numel();
    CheckElements("weight", weight, columns, kGpu);
    CheckElements("grad_weight", grad_weight, columns, kGpu);
    CheckMatrix("grad_y", grad_y, rows, columns, kGpu);
    CheckMatrix("x", x, rows, columns, kGpu);
    CheckMatrix("grad_x", grad_x, rows, columns, kGpu);
    if (residual.defined()) CheckMatrix("residual", residual, rows, columns, kGpu);
    CheckWork("RmsNormBackward", work, RmsNormBackwardWorkBytes(kGpu, rows, columns, x.element_size()));
    TORCH_CHECK(static_cast<int64_t>(grad_weight.nbytes()) <= cuda::kMaxNormBytes, "a norm of ", columns,
                " columns has no kernel on GPUs: its sums take ", grad_weight.nbytes(), " bytes, at most ",
                cuda::kMaxNormBytes, " are allowed");
    WithElementType(x, [&]<typename E>(E) {
      CheckLaunch(cuda::RmsNormBackward(
                      ElementsOf<E>(grad_y), ElementsOf<E>(x), ElementsOf<E>(weight), epsilon, rows, columns,
                      residual.defined() ? ElementsOf<E>(residual) : nullptr, add_x,
                      MutableElementsOf<E>(grad_x), add_weight, MutableElementsOf<Arithmetic<E>>(grad_weight),
                      static_cast<Arithmetic<E>*>(work.begin), Current()),
                  "RmsNormBackward");
    });
  }

  void Rope(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, at::Tensor& x) const override {
    Rotate(cosines, sines, heads, 1, x);
  }

  void RopeBackward(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads,
                    at::Tensor& grad) const override {
    Rotate(cosines, sines, heads, -1, grad);
  }

  void PrepareAttention(const AttentionShape& shape, int64_t element_bytes) const override {
    if (IsFlashAttention(shape, element_bytes)) flash_.Prepare(shape);
  }

  void Attention(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& context, at::Tensor& lse,
                 Workspace work) const override {
    CheckAttention(shape, qkv, context, lse, kGpu);
    CheckWork("Attention", work, AttentionWorkBytes(kGpu, shape, qkv.element_size()));
    if (IsFlashAttention(shape, qkv.element_size())) {
      flash_.Forward(shape, ElementsOf<Bf16>(qkv), MutableElementsOf<Bf16>(context),
                     MutableElementsOf<float>(lse), work, Current());
    } else {
      cuda::BlockedAttention(shape, qkv, context, lse, work);
    }
  }

  void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                         const at::Tensor& lse, const at::Tensor& grad_context, at::Tensor& grad_qkv,
                         Workspace work) const override {
    CheckAttention(shape, qkv, context, lse, kGpu);
    CheckMatrix("grad_context", grad_context, context.size(0), context.size(1), kGpu);
    CheckMatrix("grad_qkv", grad_qkv, qkv.size(0), qkv.size(1), kGpu);
    CheckWork("AttentionBackward", work, AttentionBackwardWorkBytes(kGpu, shape, qkv.element_size()));
    if (IsFlashAttention(shape, qkv.element_size())) {
      flash_.Backward(shape, ElementsOf<Bf16>(qkv), ElementsOf<Bf16>(context), ElementsOf<float>(lse),
                      ElementsOf<Bf16>(grad_context), MutableElementsOf<Bf16>(grad_qkv), work, Current());
    } else {
      cuda::BlockedAttentionBackward(shape, qkv, lse, grad_context, grad_qkv, work);
    }
  }

  void HeadNorm(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& query_weight,
                const at::Tensor& key_weight, double epsilon, at::Tensor& normed) const override {
    const int64_t head_dim = CheckNormedHeads(qkv, heads, kv_heads, query_weight, key_weight, normed);
    WithElementType(qkv, [&]<typename E>(E) {
      CheckLaunch(cuda::HeadNorm(ElementsOf<E>(qkv), qkv.size(0), heads, kv_heads, head_dim,
                                 ElementsOf<E>(query_weight), ElementsOf<E>(key_weight), epsilon,
                                 MutableElementsOf<E>(normed), Current()),
                  "HeadNorm");
    });
  }

  void HeadNormBackward(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                        const at::Tensor& query_weight, const at::Tensor& key_weight, double epsilon,
                        bool add_weights, at::Tensor& grad, at::Tensor& grad_query_weight,
                        at::Tensor& grad_key_weight, Workspace work) const override {
    const int64_t head_dim = CheckNormedHeads(qkv, heads, kv_heads, query_weight, key_weight, grad);
    TORCH_CHECK(head_dim <= cuda::kMostNormedHeadDim, "heads that are normalised have at most ",
                cuda::kMostNormedHeadDim, " dims on a GPU, not ", head_dim);
    CheckElements("grad_query_weight", grad_query_weight, head_dim, kGpu);
    CheckElements("grad_key_weight", grad_key_weight, head_dim, kGpu);
    CheckWork("HeadNormBackward", work,
              HeadNormBackwardWorkBytes(kGpu, qkv.size(0), head_dim, qkv.element_size()));
    WithElementType(qkv, [&]<typename E>(E) {
      using T = Arithmetic<E>;
      CheckLaunch(cuda::HeadNormBackward(
                      ElementsOf<E>(qkv), qkv.size(0), heads, kv_heads, head_dim, ElementsOf<E>(query_weight),
                      ElementsOf<E>(key_weight), epsilon, add_weights, MutableElementsOf<E>(grad),
                      MutableElementsOf<T>(grad_query_weight), MutableElementsOf<T>(grad_key_weight),
                      static_cast<T*>(work.begin), Current()),
                  "HeadNormBackward");
    });
  }

  void PackLatentHeads(const LatentHeads& heads, const at::Tensor& query, const at::Tensor& key_value,
                       const at::Tensor& down, at::Tensor& qkv) const override {
    CheckLatentHeads(heads, query, key_value, down, qkv, kGpu);
    WithElementType(qkv, [&]<typename E>(E) {
      CheckLaunch(cuda::PackLatentHeads(heads, query.size(0), down.size(1), ElementsOf<E>(query),
                                        ElementsOf<E>(key_value), ElementsOf<E>(down),
                                        MutableElementsOf<E>(qkv), Current()),
                  "PackLatentHeads");
    });
  }

  void UnpackLatentHeads(const LatentHeads& heads, const at::Tensor& grad_qkv, at::Tensor& grad_query,
                         at::Tensor& grad_key_value, at::Tensor& grad_down) const override {
    CheckLatentHeads(heads, grad_query, grad_key_value, grad_down, grad_qkv, kGpu);
    WithElementType(grad_qkv, [&]<typename E>(E) {
      CheckLaunch(
          cuda::UnpackLatentHeads(heads, grad_qkv.size(0), grad_down.size(1), ElementsOf<E>(grad_qkv),
                                  MutableElementsOf<E>(grad_query), MutableElementsOf<E>(grad_key_value),
                                  MutableElementsOf<E>(grad_down), Current()),
          "UnpackLatentHeads");
    });
  }

  void SwiGlu(const at::Tensor& gate_up, at::Tensor& activated) const override {
    const int64_t rows = activated.size(0);
    const int64_t inner = activated.size(1);
    CheckMatrix("gate_up", gate_up, rows, 2 * inner, kGpu);
    CheckMatrix("activated", activated, rows, inner, kGpu);
    WithElementType(gate_up, [&]<typename E>(E) {
      CheckLaunch(
          cuda::SwiGlu(ElementsOf<E>(gate_up), rows, inner, MutableElementsOf<E>(activated), Current()),
          "SwiGlu");
    });
  }

  void SwiGluBackward(const at::Tensor& gate_up, const at::Tensor& grad_activated, at::Tensor& grad_gate_up,
                      at::Tensor& activated) const override {
    const int64_t rows = grad_activated.size(0);
    const int64_t inner = grad_activated.size(1);
    CheckMatrix("gate_up", gate_up, rows, 2 * inner, kGpu);
    CheckMatrix("grad_activated", grad_activated, rows, inner, kGpu);
    CheckMatrix("grad_gate_up", grad_gate_up, rows, 2 * inner, kGpu);
    CheckMatrix("activated", activated, rows, inner, kGpu);
    WithElementType(gate_up, [&]<typename E>(E) {
      CheckLaunch(cuda::SwiGluBackward(ElementsOf<E>(gate_up), ElementsOf<E>(grad_activated), rows, inner,
                                       MutableElementsOf<E>(grad_gate_up), MutableElementsOf<E>(activated),
                                       Current()),
                  "SwiGluBackward");
    });
  }

  void CrossEntropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse, at::Tensor& loss,
                    at::Tensor& grad_logits) const override {
    const cuda::Tokens ids = TokensOf(targets);
    CheckMatrix("logits", logits, targets.numel(), logits.size(1), kGpu);
    CheckElements("lse", lse, targets.numel(), kGpu);
    CheckElements("loss", loss, 1, kGpu);
    CheckMatrix("grad_logits", grad_logits, targets.numel(), logits.size(1), kGpu);
    WithElementType(logits, [&]<typename E>(E) {
      CheckLaunch(cuda::CrossEntropy(ElementsOf<E>(logits), ids, logits.size(1),
                                     MutableElementsOf<Arithmetic<E>>(lse), loss.mutable_data_ptr<double>(),
                                     MutableElementsOf<E>(grad_logits), Current()),
                  "CrossEntropy");
    });
  }

  void CrossEntropyBlock(const at::Tensor& logits, const at::Tensor& targets, int64_t first,
                         int64_t vocabulary, at::Tensor& lse, at::Tensor& target_logits,
                         at::Tensor& loss) const override {
    const cuda::Tokens ids = TokensOf(targets);
    CheckBlock(logits, targets.numel(), first, vocabulary, kGpu);
    CheckElements("lse", lse, targets.numel(), kGpu);
    CheckElements("target_logits", target_logits, targets.numel(), kGpu);
    CheckElements("loss", loss, 1, kGpu);
    WithElementType(logits, [&]<typename E>(E) {
      using T = Arithmetic<E>;
      CheckLaunch(cuda::CrossEntropyBlock(ElementsOf<E>(logits), ids, first, logits.size(1), vocabulary,
                                          MutableElementsOf<T>(lse), MutableElementsOf<T>(target_logits),
                                          loss.mutable_data_ptr<double>(), Current()),
                  "CrossEntropyBlock");
    });
  }

  void CrossEntropyBlockBackward(const at::Tensor& targets, int64_t first, int64_t vocabulary,
                                 const at::Tensor& lse, at::Tensor& logits) const override {
    const cuda::Tokens ids = TokensOf(targets);
    CheckBlock(logits, targets.numel(), first, vocabulary, kGpu);
    CheckElements("lse", lse, targets.numel(), kGpu);
    WithElementType(logits, [&]<typename E>(E) {
      CheckLaunch(cuda::CrossEntropyBlockBackward(ids, first, logits.size(1), ElementsOf<Arithmetic<E>>(lse),
                                                  MutableElementsOf<E>(logits), Current()),
                  "CrossEntropyBlockBackward");
    });
  }

 private:
  // Returns the dims of a head.
  static int64_t CheckNormedHeads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads,
                                  const at::Tensor& query_weight, const at::Tensor& key_weight,
                                  const at::Tensor& other) {
    const int64_t head_dim = query_weight.numel();
    CheckElements("query_weight", query_weight, head_dim, kGpu);
    CheckElements("key_weight", key_weight, head_dim, kGpu);
    CheckMatrix("qkv", qkv, qkv.size(0), (heads + 2 * kv_heads) * head_dim, kGpu);
    CheckMatrix("what is normalised", other, qkv.size(0), qkv.size(1), kGpu);
    return head_dim;
  }

  mutable cuda::FlashAttention flash_;  // both are thread-safe
  mutable cuda::MatrixProduct product_;
};

}  // namespace

const Operations& CudaOperations() {
  static const Cuda operations;
  return operations;
}

}  // namespace tandem::ops
