#include "ops/cuda/operations.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/cuda/kernels.h"
#include "ops/linear.h"
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

// Scores of at most so many bytes are in memory at once, but at least those of one sequence.
constexpr int64_t kScoreBytes = int64_t{1} << 30;

// Some whole sequences, their heads as batches of matrices: heads that share a key-value head lie below each
// other.
class Sequences {
 public:
  Sequences(const AttentionShape& shape, int64_t first, int64_t count)
      : s_(shape), first_(first), count_(count) {}

  // Columns [first head, ...) of a matrix [B * S, ≥ …], copied to [count * kv_heads, group * S, d], in float
  // where it is of bfloat16: scores are not rounded.
  at::Tensor Grouped(const at::Tensor& matrix, int64_t first_head, int64_t heads) const {
    const at::ScalarType type = matrix.scalar_type() == at::kBFloat16 ? at::kFloat : matrix.scalar_type();
    return Heads(matrix, first_head, heads)
        .to(type)
        .contiguous()
        .view({count_ * s_.kv_heads, -1, s_.head_dim});
  }

  // The same columns as a view [count, heads, S, d].
  at::Tensor Heads(const at::Tensor& matrix, int64_t first_head, int64_t heads) const {
    return matrix.narrow(0, first_ * s_.length, count_ * s_.length)
        .narrow(1, first_head * s_.head_dim, heads * s_.head_dim)
        .view({count_, s_.length, heads, s_.head_dim})
        .transpose(1, 2);
  }

  // Writes matrices as Grouped makes them, or one per head, to those columns.
  void Put(const at::Tensor& grouped, int64_t first_head, int64_t heads, const at::Tensor& matrix) const {
    Heads(matrix, first_head, heads).copy_(grouped.view({count_, heads, s_.length, s_.head_dim}));
  }

  int64_t num_heads() const { return count_ * s_.heads; }
  int64_t first_lse() const { return first_ * s_.heads * s_.length; }

 private:
  const AttentionShape s_;
  const int64_t first_;
  const int64_t count_;
};

// Calls body(sequences) for all of them.
template <typename Body>
void ForEachBatch(const AttentionShape& shape, int64_t element_bytes, const Body& body) {
  const int64_t bytes = shape.heads * shape.length * shape.length * element_bytes;
  const int64_t batch = std::max<int64_t>(1, kScoreBytes / bytes);
  for (int64_t first = 0; first < shape.sequences; first += batch) {
    body(Sequences(shape, first, std::min(batch, shape.sequences - first)));
  }
}

class Cuda final : public Operations {
 public:
  // Of products of bfloat16: sums are of float, also between the parts of one that cuBLAS splits.
  Cuda() { at::globalContext().setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false); }

  c10::Device device() const override { return {at::kCUDA, c10::cuda::current_device()}; }

  at::Tensor Constant(const at::Tensor& host) const override {
    return host.to(host.options().device(device()));
  }

  void Linear(const at::Tensor& x, const at::Tensor& weight, at::Tensor& y, Workspace) const override {
    ops::Linear(x, weight, y);
  }
  void LinearBackwardInput(const at::Tensor& grad_y, const at::Tensor& weight, at::Tensor& grad_x,
                           Workspace) const override {
    ops::LinearBackwardInput(grad_y, weight, grad_x);
  }
  void LinearBackwardWeight(const at::Tensor& grad_y, const at::Tensor& x, bool add, at::Tensor& grad_weight,
                            Workspace) const override {
    ops::LinearBackwardWeight(grad_y, x, add, grad_weight);
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
                         at::Tensor& grad_weight) const override {
    const cuda::Tokens ids = TokensOf(tokens);
    CheckMatrix("grad_weight", grad_weight, grad_weight.size(0), grad_weight.size(1), kGpu);
    CheckMatrix("grad_output", grad_output, tokens.numel(), grad_weight.size(1), kGpu);
    WithElementType(grad_output, [&]<typename E>(E) {
      const auto launch = [&](auto* sums) {
        CheckLaunch(cuda::EmbeddingBackward(ids, ElementsOf<E>(grad_output), add, grad_weight.size(0),
                                            grad_weight.size(1), sums, Current()),
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
                       bool add_weight, at::Tensor& grad_weight) const override {
    const int64_t rows = x.size(0);
    const int64_t columns = weight.numel();
    CheckElements("weight", weight, columns, kGpu);
    CheckElements("grad_weight", grad_weight, columns, kGpu);
    CheckMatrix("grad_y", grad_y, rows, columns, kGpu);
    CheckMatrix("x", x, rows, columns, kGpu);
    CheckMatrix("grad_x", grad_x, rows, columns, kGpu);
    if (residual.defined()) CheckMatrix("residual", residual, rows, columns, kGpu);
    at::Tensor reciprocals = at::empty({rows}, grad_weight.options());
    WithElementType(x, [&]<typename E>(E) {
      CheckLaunch(cuda::RmsNormBackward(
                      ElementsOf<E>(grad_y), ElementsOf<E>(x), ElementsOf<E>(weight), epsilon, rows, columns,
                      residual.defined() ? ElementsOf<E>(residual) : nullptr, add_x,
                      MutableElementsOf<E>(grad_x), add_weight, MutableElementsOf<Arithmetic<E>>(grad_weight),
                      MutableElementsOf<Arithmetic<E>>(reciprocals), Current()),
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

  // `work` is for the CPU's loops.
  void Attention(const AttentionShape& shape, const at::Tensor& qkv, at::Tensor& context, at::Tensor& lse,
                 at::Tensor&) const override {
    CheckAttention(shape, qkv, context, lse, kGpu);
    ForEachBatch(shape, lse.element_size(), [&](const Sequences& batch) {
      const at::Tensor query = batch.Grouped(qkv, 0, shape.heads).mul_(Scale(shape));
      const at::Tensor key = batch.Grouped(qkv, shape.heads, shape.kv_heads);
      const at::Tensor value = batch.Grouped(qkv, shape.heads + shape.kv_heads, shape.kv_heads);
      at::Tensor scores = at::bmm(query, key.transpose(1, 2));
      WithElementType(qkv, [&]<typename E>(E) {
        CheckLaunch(
            cuda::CausalSoftmax(batch.num_heads(), shape.length, MutableElementsOf<Arithmetic<E>>(scores),
                                MutableElementsOf<Arithmetic<E>>(lse) + batch.first_lse(), Current()),
            "Attention");
      });
      batch.Put(at::bmm(scores, value), 0, shape.heads, context);
    });
  }

  void AttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& context,
                         const at::Tensor& lse, const at::Tensor& grad_context, at::Tensor& grad_qkv,
                         at::Tensor&) const override {
    CheckAttention(shape, qkv, context, lse, kGpu);
    CheckMatrix("grad_context", grad_context, context.size(0), context.size(1), kGpu);
    CheckMatrix("grad_qkv", grad_qkv, qkv.size(0), qkv.size(1), kGpu);
    ForEachBatch(shape, lse.element_size(), [&](const Sequences& batch) {
      const at::Tensor query = batch.Grouped(qkv, 0, shape.heads).mul_(Scale(shape));
      const at::Tensor key = batch.Grouped(qkv, shape.heads, shape.kv_heads);
      const at::Tensor value = batch.Grouped(qkv, shape.heads + shape.kv_heads, shape.kv_heads);
      const at::Tensor grad = batch.Grouped(grad_context, 0, shape.heads);
      at::Tensor probabilities = at::bmm(query, key.transpose(1, 2));
      at::Tensor grad_scores = at::bmm(grad, value.transpose(1, 2));
      WithElementType(qkv, [&]<typename E>(E) {
        CheckLaunch(cuda::CausalProbabilities(batch.num_heads(), shape.length,
                                              ElementsOf<Arithmetic<E>>(lse) + batch.first_lse(),
                                              MutableElementsOf<Arithmetic<E>>(probabilities), Current()),
                    "AttentionBackward");
        CheckLaunch(
            cuda::SoftmaxBackward(batch.num_heads(), shape.length, ElementsOf<Arithmetic<E>>(probabilities),
                                  MutableElementsOf<Arithmetic<E>>(grad_scores), Current()),
            "AttentionBackward");
      });
      batch.Put(at::bmm(grad_scores, key).mul_(Scale(shape)), 0, shape.heads, grad_qkv);
      batch.Put(at::bmm(grad_scores.transpose(1, 2), query), shape.heads, shape.kv_heads, grad_qkv);
      batch.Put(at::bmm(probabilities.transpose(1, 2), grad), shape.heads + shape.kv_heads, shape.kv_heads,
                grad_qkv);
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

  void CrossEntropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& lse,
                    at::Tensor& loss) const override {
    const cuda::Tokens ids = TokensOf(targets);
    CheckMatrix("logits", logits, targets.numel(), logits.size(1), kGpu);
    CheckElements("lse", lse, targets.numel(), kGpu);
    CheckElements("loss", loss, 1, kGpu);
    WithElementType(logits, [&]<typename E>(E) {
      CheckLaunch(cuda::CrossEntropy(ElementsOf<E>(logits), ids, logits.size(1),
                                     MutableElementsOf<Arithmetic<E>>(lse), loss.mutable_data_ptr<double>(),
                                     Current()),
                  "CrossEntropy");
    });
  }

  void CrossEntropyBackward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& lse,
                            at::Tensor& grad_logits) const override {
    const cuda::Tokens ids = TokensOf(targets);
    CheckMatrix("logits", logits, targets.numel(), logits.size(1), kGpu);
    CheckElements("lse", lse, targets.numel(), kGpu);
    CheckMatrix("grad_logits", grad_logits, targets.numel(), logits.size(1), kGpu);
    WithElementType(logits, [&]<typename E>(E) {
      CheckLaunch(cuda::CrossEntropyBackward(ElementsOf<E>(logits), ids, ElementsOf<Arithmetic<E>>(lse),
                                             logits.size(1), MutableElementsOf<E>(grad_logits), Current()),
                  "CrossEntropyBackward");
    });
  }

  void ResidualAdd(const at::Tensor& x, at::Tensor& y) const override {
    CheckElements("x", x, x.numel(), kGpu);
    CheckElements("y", y, x.numel(), kGpu);
    WithElementType(x, [&]<typename E>(E) {
      CheckLaunch(cuda::Add(ElementsOf<E>(x), x.numel(), MutableElementsOf<E>(y), Current()), "ResidualAdd");
    });
  }

 private:
  static double Scale(const AttentionShape& shape) {
    return 1 / std::sqrt(static_cast<double>(shape.head_dim));
  }
};

}  // namespace

const Operations& CudaOperations() {
  static const Cuda operations;
  return operations;
}

}  // namespace tandem::ops
