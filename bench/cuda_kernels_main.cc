// SPDX-License-Identifier: Apache-2.0
// How fast each operation of the dense path is on this machine's first GPU, against what the GPU can do and
// beside LibTorch's own kernels for the same:
//   tandem-bench-kernels [SHAPE ...]      llama-3-8b, qwen2.5-7b, demo; all of them if omitted
// Prints one JSON object a line. The first has what is measured against: a copy within the GPU, in bytes read
// and written a second, and an 8192^3 product of bfloat16. Then one a shape and operation: the median of
// repeated runs in ms, what the operation must move ("bytes": every operand once) or compute ("flops"), and
// the share of the bound that follows. "aten_ms": LibTorch's time, null where it has no such operation.
// Operands are larger than the caches, or stand in a line of several. Each measurement begins on a GPU that
// has rested (gpu_bounds.h).

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Device.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu_bounds.h"
#include "fsdp/buffer_bytes.h"
#include "fsdp/cuda/shard_kernels.h"
#include "fsdp/layout.h"
#include "nlohmann/json.hpp"
#include "ops/attention_work.h"
#include "ops/cuda/operations.h"
#include "ops/linear_work.h"
#include "ops/operations.h"
#include "ops/rope.h"
#include "ops/row_work.h"

namespace {

using tandem::bench::Amount;
using tandem::bench::Bounds;
using tandem::bench::Bytes;
using tandem::bench::MeasureBounds;
using tandem::bench::Unit;
using tandem::ops::AttentionShape;
using tandem::ops::DeviceKind;
using tandem::ops::Workspace;
namespace ops = tandem::ops;
namespace fsdp = tandem::fsdp;

struct Shape {
  const char* name;
  AttentionShape attention;
  int64_t hidden;
  int64_t inner;
  int64_t vocabulary;
};

constexpr Shape kShapes[] = {
    {"llama-3-8b", {4, 4096, 32, 8, 128}, 4096, 14336, 128256},
    {"qwen2.5-7b", {16, 1024, 28, 4, 128}, 3584, 18944, 152064},
    {"demo", {8, 256, 4, 2, 32}, 128, 384, 512},
};

const at::TensorOptions kBf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
const at::TensorOptions kFloat = at::TensorOptions(at::kCUDA).dtype(at::kFloat);

class Bench {
 public:
  Bench(const Shape& shape, const Bounds& bounds)
      : s_(shape),
        bounds_(bounds),
        tokens_(shape.attention.sequences * shape.attention.length),
        query_(shape.attention.heads * shape.attention.head_dim),
        qkv_(query_ + 2 * shape.attention.kv_heads * shape.attention.head_dim) {}

  void Run() {
    Norm();
    Rotation();
    Attention();
    Activation();
    Products();
    Loss();
    Tokens();
    Shard();
  }

 private:
  void Moves(const char* name, double bytes, const std::function<void()>& ours,
             const std::function<void()>& aten) {
    Report(name, {Unit::kBytes, bytes}, ours, aten);
  }
  void Computes(const char* name, double flops, const std::function<void()>& ours,
                const std::function<void()>& aten) {
    Report(name, {Unit::kFlops, flops}, ours, aten);
  }
  void Report(const char* name, const Amount& amount, const std::function<void()>& ours,
              const std::function<void()>& aten) {
    tandem::bench::Report({{"shape", s_.name}, {"operation", name}}, amount, bounds_, ours, aten);
    c10::cuda::CUDACachingAllocator::emptyCache();
  }
  Workspace Work(int64_t bytes) {
    if (work_.numel() < bytes) {
      work_ = at::empty({bytes}, kBf16.dtype(at::kByte));
    }
    return {.begin = work_.mutable_data_ptr(), .bytes = bytes};
  }

  void Norm() {
    const at::Tensor x = at::randn({tokens_, s_.hidden}, kBf16);
    const at::Tensor grad = at::randn({tokens_, s_.hidden}, kBf16);
    const at::Tensor residual = at::randn({tokens_, s_.hidden}, kBf16);
    const at::Tensor weight = at::ones({s_.hidden}, kBf16);
    at::Tensor y = at::empty_like(x);
    at::Tensor grad_weight = at::zeros({s_.hidden}, kFloat);
    Moves(
        "rms_norm", Bytes({x, y}), [&] { ops_.RmsNorm(x, weight, 1e-5, y); },
        [&] { at::_fused_rms_norm(x, {s_.hidden}, weight, 1e-5); });
    const Workspace work =
        Work(ops::RmsNormBackwardWorkBytes(DeviceKind::kGpu, tokens_, s_.hidden, x.element_size()));
    const at::Tensor reciprocals = std::get<1>(at::_fused_rms_norm(x, {s_.hidden}, weight, 1e-5));
    Moves(
        "rms_norm backward, residual added", Bytes({x, grad, residual, y}),
        [&] { ops_.RmsNormBackward(grad, x, weight, 1e-5, residual, false, y, false, grad_weight, work); },
        [&] {
          std::get<0>(at::_fused_rms_norm_backward(grad, x, {s_.hidden}, reciprocals, weight, {true, true}))
              .add_(residual);
        });
  }

  void Rotation() {
    const AttentionShape& a = s_.attention;
    at::Tensor cosines = at::empty({a.length, a.head_dim / 2});
    at::Tensor sines = at::empty({a.length, a.head_dim / 2});
    ops::RopeTables(500000, cosines, sines);
    const at::Tensor c = ops_.Constant(cosines);
    const at::Tensor s = ops_.Constant(sines);
    at::Tensor qkv = at::randn({tokens_, qkv_}, kBf16);
    const int64_t heads = a.heads + a.kv_heads;
    const at::Tensor x =
        qkv.narrow(1, 0, heads * a.head_dim).view({a.sequences, a.length, heads, a.head_dim});
    const at::Tensor wide_c = c.view({1, a.length, 1, -1});
    const at::Tensor wide_s = s.view({1, a.length, 1, -1});
    Moves(
        "rope", 2 * Bytes({x}), [&] { ops_.Rope(c, s, heads, qkv); },
        [&] {
          const at::Tensor first = x.narrow(3, 0, a.head_dim / 2);
          const at::Tensor second = x.narrow(3, a.head_dim / 2, a.head_dim / 2);
          at::cat({first * wide_c - second * wide_s, second * wide_c + first * wide_s}, 3).to(at::kBFloat16);
        });
  }

  void Attention() {
    const AttentionShape& a = s_.attention;
    const at::Tensor qkv = at::randn({tokens_, qkv_}, kBf16);
    const at::Tensor grad = at::randn({tokens_, query_}, kBf16);
    at::Tensor context = at::empty({tokens_, query_}, kBf16);
    at::Tensor lse = at::empty({a.sequences, a.heads, a.length}, kFloat);
    at::Tensor grad_qkv = at::empty_like(qkv);
    const auto heads = [&](int64_t from, int64_t count) {
      return qkv.narrow(1, from * a.head_dim, count * a.head_dim)
          .view({a.sequences, a.length, count, a.head_dim})
          .transpose(1, 2);
    };
    const at::Tensor q = heads(0, a.heads);
    const at::Tensor k = heads(a.heads, a.kv_heads);
    const at::Tensor v = heads(a.heads + a.kv_heads, a.kv_heads);
    const double flops = 2.0 * static_cast<double>(tokens_) * static_cast<double>(a.length) *
                         static_cast<double>(query_);  // two products, half of each
    const auto forward = [&] {
      return at::_scaled_dot_product_cudnn_attention(q, k, v, {}, /*compute_log_sumexp=*/true, 0.0, true);
    };
    // Of 500 tokens, so that the starts are not those of the kernels' tiles.
    const at::Tensor starts =
        at::arange(a.length, kBf16.dtype(at::kLong)).floor_divide(500).mul(500).repeat({a.sequences, 1});
    const auto ours = [&](const AttentionShape& form) {
      ops_.PrepareAttention(form, 2);
      ops_.Attention(form, qkv, form.documents ? starts : at::Tensor(), context, lse,
                     Work(ops::AttentionWorkBytes(DeviceKind::kGpu, form, 2)));
    };
    AttentionShape within = a;
    within.documents = true;
    Computes(
        "attention within documents", flops, [&] { ours(within); }, nullptr);
    Computes(
        "attention", flops, [&] { ours(a); }, [&] { forward(); });
    const auto result = forward();
    const at::Tensor grad_heads = grad.view({a.sequences, a.length, a.heads, a.head_dim}).transpose(1, 2);
    const auto backward = [&](const AttentionShape& form) {
      ops_.PrepareAttention(form, 2);
      ops_.AttentionBackward(form, qkv, form.documents ? starts : at::Tensor(), context, lse, grad, grad_qkv,
                             Work(ops::AttentionBackwardWorkBytes(DeviceKind::kGpu, form, 2)));
    };
    Computes(
        "attention backward, repeatable", 2.5 * flops, [&] { backward(a); }, nullptr);
    Computes(
        "attention backward within documents, repeatable", 2.5 * flops, [&] { backward(within); }, nullptr);
    AttentionShape free = a;
    free.repeats = false;
    Computes(
        "attention backward, not repeatable", 2.5 * flops, [&] { backward(free); },
        [&] {
          at::_scaled_dot_product_cudnn_attention_backward(
              grad_heads, q, k, v, std::get<0>(result), std::get<1>(result), std::get<6>(result),
              std::get<7>(result), {}, {}, {}, a.length, a.length, 0.0, true);
        });
    work_ = at::Tensor();
  }

  void Activation() {
    const at::Tensor gate_up = at::randn({tokens_, 2 * s_.inner}, kBf16);
    const at::Tensor gate = gate_up.narrow(1, 0, s_.inner);
    const at::Tensor up = gate_up.narrow(1, s_.inner, s_.inner);
    at::Tensor activated = at::randn({tokens_, s_.inner}, kBf16);
    at::Tensor grad = at::empty_like(gate_up);
    Moves(
        "swiglu", Bytes({gate_up, activated}), [&] { ops_.SwiGlu(gate_up, activated); },
        [&] { at::silu(gate) * up; });
    Moves(
        "swiglu backward, activation recomputed", 2 * Bytes({gate_up, activated}),
        [&] { ops_.SwiGluBackward(gate_up, activated, grad, activated); },
        [&] {
          const at::Tensor silu = at::silu(gate);
          const at::Tensor product = silu * up;
          const at::Tensor grad_up = activated * silu;
          at::silu_backward(activated * up, gate);
        });
  }

  // y = x W^T and its backwards, of every matrix of a layer and the head's.
  void Products() {
    struct Matrix {
      const char* name;
      int64_t outputs;
      int64_t inputs;
    };
    for (const Matrix& m : std::vector<Matrix>{{"qkv", qkv_, s_.hidden},
                                               {"output", s_.hidden, query_},
                                               {"gate_up", 2 * s_.inner, s_.hidden},
                                               {"down", s_.hidden, s_.inner},
                                               {"head", s_.vocabulary, s_.hidden}}) {
      const at::Tensor x = at::randn({tokens_, m.inputs}, kBf16);
      const at::Tensor weight = at::randn({m.outputs, m.inputs}, kBf16);
      at::Tensor y = at::randn({tokens_, m.outputs}, kBf16);
      at::Tensor grad_x = at::empty_like(x);
      at::Tensor grad_weight = at::zeros_like(weight);
      const Workspace work = Work(ops::kGpuLinearWorkBytes);
      const double flops =
          2.0 * static_cast<double>(tokens_) * static_cast<double>(m.outputs) * static_cast<double>(m.inputs);
      const std::string name = m.name;
      Computes((name + " grad x").c_str(), flops,
               [&] { ops_.LinearBackwardInput(y, weight, /*add=*/false, grad_x, work); },
               [&] { at::mm_out(grad_x, y, weight); });
      Computes((name + " grad weight").c_str(), flops,
               [&] { ops_.LinearBackwardWeight(y, x, false, grad_weight, work); },
               [&] { at::mm_out(grad_weight, y.t(), x); });
      at::Tensor sums = at::zeros(weight.sizes(), kFloat);
      Computes((name + " grad weight, added to float").c_str(), flops,
               [&] { ops_.LinearBackwardWeight(y, x, true, sums, work); }, nullptr);
      Computes(
          name.c_str(), flops, [&] { ops_.Linear(x, weight, at::Tensor(), y, work); },
          [&] { at::mm_out(y, x, weight.t()); });
    }
  }

  void Loss() {
    at::Tensor logits = at::randn({tokens_, s_.vocabulary}, kBf16);
    const at::Tensor targets =
        at::randint(s_.vocabulary, {s_.attention.sequences, s_.attention.length}, kBf16.dtype(at::kLong));
    at::Tensor lse = at::empty({tokens_}, kFloat);
    at::Tensor loss = at::empty({1}, kFloat.dtype(at::kDouble));
    Moves(
        "cross entropy and its backward, in place", 2 * Bytes({logits}),
        [&] { ops_.CrossEntropy(logits, targets, lse, loss, logits); },
        [&] {
          const at::Tensor flat = targets.view({-1});
          const at::Tensor logarithms = at::_log_softmax(logits, 1, /*half_to_float=*/false);
          const auto [value, weight] = at::nll_loss_forward(logarithms, flat, {}, at::Reduction::Mean, -100);
          const at::Tensor grad = at::nll_loss_backward(at::ones({}, kBf16), logarithms, flat, {},
                                                        at::Reduction::Mean, -100, weight);
          at::_log_softmax_backward_data(grad, logarithms, 1, at::kBFloat16);
        });
  }

  void Tokens() {
    const at::Tensor table = at::randn({s_.vocabulary, s_.hidden}, kBf16);
    const at::Tensor ids =
        at::randint(s_.vocabulary, {s_.attention.sequences, s_.attention.length}, kBf16.dtype(at::kLong));
    at::Tensor hidden = at::randn({tokens_, s_.hidden}, kBf16);
    at::Tensor grad_table = at::zeros_like(table);
    const Workspace work = Work(ops::EmbeddingBackwardWorkBytes(DeviceKind::kGpu, tokens_));
    Moves(
        "embedding backward", Bytes({hidden, grad_table}),
        [&] { ops_.EmbeddingBackward(ids, hidden, false, grad_table, work); },
        [&] { at::embedding_dense_backward(hidden, ids.view({-1}), s_.vocabulary, -1, false); });
    Moves(
        "embedding", 2 * Bytes({hidden}), [&] { ops_.Embedding(ids, table, hidden); },
        [&] { at::embedding(table, ids.view({-1})); });
  }

  // The optimizer's pass and the fold of one contribution, over the matrices of one layer on one rank.
  void Shard() {
    const int64_t parameters = s_.hidden * (qkv_ + query_ + 3 * s_.inner);
    const fsdp::Layout layout = fsdp::MakeLayout({{.name = "layer", .shape = {parameters}}}, 2);
    const auto elements = static_cast<int64_t>(layout.elements);
    const std::unique_ptr<fsdp::UnitKernels> kernels =
        fsdp::CudaShardKernels().MakeUnit({.reduces_bf16 = true,
                                           .shard_elements = elements,
                                           .num_parameters = 1,
                                           .pieces = fsdp::PiecesOf(layout, {0, elements})});
    const fsdp::UnitBufferBytes sizes = fsdp::BufferBytesOf(layout, {}, 4);
    const auto bytes_of = [&](const auto& value) {
      at::Tensor host = at::empty({static_cast<int64_t>(sizeof(value))}, at::kByte);
      std::memcpy(host.mutable_data_ptr(), &value, sizeof(value));
      return host.to(at::kCUDA);
    };
    const at::Tensor outcome = bytes_of(fsdp::NormOutcome{.norm = 1, .clip = 1});
    const at::Tensor inputs = bytes_of(
        fsdp::RunInputs{.applied_step = 1, .learning_rate = 1e-4, .correction1 = 0.1, .correction2 = 0.05});
    const at::Tensor contribution = at::randn({elements}, kBf16);
    at::Tensor gradients = at::zeros({elements}, kFloat);
    at::Tensor weights = at::randn({elements}, kFloat);
    at::Tensor exp_avg = at::zeros({elements}, kFloat);
    at::Tensor exp_avg_sq = at::zeros({elements}, kFloat);
    at::Tensor published = at::empty({elements}, kBf16);
    at::Tensor norms = at::zeros({sizes.update_norms}, kBf16.dtype(at::kByte));
    at::Tensor terms = at::zeros({sizes.norm_terms}, kBf16.dtype(at::kByte));
    at::Tensor scratch = at::zeros({sizes.optimizer_scratch}, kBf16.dtype(at::kByte));
    Moves(
        "fold with the norm's terms", Bytes({contribution, gradients}),
        [&] {
          kernels->Fold(contribution.const_data_ptr(), gradients.mutable_data_ptr(), /*add=*/false,
                        static_cast<fsdp::UnitNormTerms*>(terms.mutable_data_ptr()));
        },
        [&] { gradients.copy_(contribution); });
    fsdp::OptimizerArrays arrays{.gradients = gradients.const_data_ptr(),
                                 .weights = weights.mutable_data_ptr(),
                                 .exp_avg = exp_avg.mutable_data_ptr(),
                                 .exp_avg_sq = exp_avg_sq.mutable_data_ptr(),
                                 .published = published.mutable_data_ptr(),
                                 .outcome = static_cast<const fsdp::NormOutcome*>(outcome.const_data_ptr()),
                                 .inputs = static_cast<const fsdp::RunInputs*>(inputs.const_data_ptr()),
                                 .update_norms = static_cast<fsdp::ParameterNorms*>(norms.mutable_data_ptr()),
                                 .scratch = scratch.mutable_data_ptr()};
    const fsdp::AdamWConfig config{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    std::vector<at::Tensor> steps = {at::ones({}, kFloat)};
    for (const char* what : {"adamw, norms of the parameter, bf16 copy (ATen: update alone)",
                             "adamw, bf16 copy (ATen: update alone)"}) {
      Moves(
          what, Bytes({gradients, weights, weights, exp_avg, exp_avg, exp_avg_sq, exp_avg_sq, published}),
          [&] { kernels->OptimizerStep(arrays, config); },
          [&] {
            at::_fused_adamw_({weights}, {gradients}, {exp_avg}, {exp_avg_sq}, {}, steps, 1e-4, 0.9, 0.95,
                              0.1, 1e-8, false, false);
          });
      arrays.update_norms = nullptr;
    }
  }

  const Shape& s_;
  const Bounds bounds_;
  const int64_t tokens_;
  const int64_t query_;
  const int64_t qkv_;
  const ops::Operations& ops_ = ops::CudaOperations();
  at::Tensor work_;
};

}  // namespace

int main(int argc, char** argv) {
  const c10::InferenceMode no_graph;
  std::vector<const Shape*> shapes;
  for (int i = 1; i < argc; ++i) {
    const auto* const found = std::find_if(std::begin(kShapes), std::end(kShapes),
                                           [&](const Shape& s) { return s.name == std::string(argv[i]); });
    if (found == std::end(kShapes)) {
      std::fprintf(stderr, "no shape '%s'; allowed: llama-3-8b, qwen2.5-7b, demo\n", argv[i]);
      return 2;
    }
    shapes.push_back(found);
  }
  if (shapes.empty()) {
    for (const Shape& shape : kShapes) {
      shapes.push_back(&shape);
    }
  }
  const Bounds bounds = MeasureBounds();
  for (const Shape* shape : shapes) {
    Bench(*shape, bounds).Run();
  }
  return 0;
}
