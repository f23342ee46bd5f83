// SPDX-License-Identifier: Apache-2.0
// Times each operation of the dense path on this machine's first GPU, against the GPU's measured speed and
// beside LibTorch's own kernels for the same:
//   tandem-bench-kernels [SHAPE ...]      llama-3-8b, qwen2.5-7b, deepseek-v3, demo, nemotron-h-8b,
//                                         qwen3-next; all if omitted
// Prints one JSON object a line, each with the GPU, the commit and the date (result_line.h). The first has
// the GPU's speed: a copy within the GPU, in bytes read and written a second, and an 8192^3 product of
// bfloat16. Then one for each shape and operation: the median of repeated runs in ms, what the operation must
// move ("bytes": every operand once) or compute ("flops": attention's of the scores that its mask leaves),
// and its share of the bound. "aten_ms" is LibTorch's time for the same, of several of its operations if no
// single one computes it, or null if it has none. All runs of an operation have the same operands: those of
// llama-3-8b and qwen2.5-7b are larger than the caches, the demo's are in them. The GPU is idle before each
// measurement (gpu_bounds.h).

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/addmm.h>
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
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Device.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "bench/gpu_bounds.h"
#include "bench/kernel_times.h"
#include "nlohmann/json.hpp"
#include "ops/attention_shape.h"
#include "ops/cuda/operations.h"
#include "ops/latent_shape.h"
#include "ops/linear_work.h"
#include "ops/operations.h"
#include "ops/rotary_tables.h"
#include "ops/row_work.h"
#include "ops/tensors.h"

namespace {

using tandem::bench::Bounds;
using tandem::bench::Bytes;
using tandem::bench::MeasureBounds;
using tandem::bench::ShapeRows;
using tandem::ops::AttentionShape;
using tandem::ops::DeviceKind;
using tandem::ops::Workspace;
namespace ops = tandem::ops;

struct Shape {
  const char* name;
  AttentionShape attention;
  int64_t hidden = 0;  // 0: its attention alone is measured
  int64_t inner = 0;
  int64_t vocabulary = 0;
  std::vector<std::array<int64_t, 2>> other_lengths = {};  // sequences, and their rows
};

const Shape kShapes[] = {
    {"llama-3-8b", {4, 4096, 32, 8, 128}, 4096, 14336, 128256, {{2, 4096}, {1, 8192}}},
    {"qwen2.5-7b", {16, 1024, 28, 4, 128}, 3584, 18944, 152064},
    // Its values have 128 dims; with the zeros behind them (ops/latent_heads.h), which count, they have 192.
    {"deepseek-v3", {2, 4096, 128, 128, 192}},
    {"demo", {4, 256, 4, 4, 32}, 128, 352, 256},  // examples/headers.yaml
};

// The gated delta nets of Qwen3-Next.
constexpr char kDeltaName[] = "qwen3-next";
constexpr ops::DeltaShape kDeltaNet{.sequences = 2,
                                    .length = 4096,
                                    .key_heads = 16,
                                    .value_heads = 32,
                                    .key_dim = 128,
                                    .value_dim = 128,
                                    .chunk = 64};

// The Mamba-2 mixers of Nemotron-H-8B.
constexpr char kMixerName[] = "nemotron-h-8b";
constexpr ops::ScanShape kMixer{
    .sequences = 2, .length = 4096, .heads = 128, .head_dim = 64, .groups = 8, .state = 128, .chunk = 128};

const at::TensorOptions kBf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
const at::TensorOptions kFloat = at::TensorOptions(at::kCUDA).dtype(at::kFloat);

class Bench {
 public:
  Bench(const Shape& shape, const Bounds& bounds)
      : s_(shape),
        rows_(shape.name, bounds),
        tokens_(shape.attention.tokens()),
        query_(shape.attention.context_columns()),
        qkv_(shape.attention.qkv_columns()) {}

  void Run() {
    if (s_.hidden == 0) {
      return Attention();
    }
    Norm();
    Rotation();
    HeadNorms();
    LatentHeads();
    Attention();
    Activation();
    Products();
    Loss();
    Tokens();
    tandem::bench::TimeShard(s_.hidden * (qkv_ + query_ + 3 * s_.inner), rows_);
  }

 private:
  void Attention() const {
    tandem::bench::TimeAttention(s_.attention, "attention", rows_);
    // Batches whose rates cuDNN's own measurements give.
    for (const auto& [sequences, length] : s_.other_lengths) {
      AttentionShape other = s_.attention;
      other.sequences = sequences;
      other.length = length;
      tandem::bench::TimeAttention(
          other, "attention " + std::to_string(sequences) + " x " + std::to_string(length), rows_);
    }
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
    rows_.Moves(
        "rms_norm", Bytes({x, y}), [&] { ops_.RmsNorm(x, weight, {1e-5}, y)(); },
        [&] { at::_fused_rms_norm(x, {s_.hidden}, weight, 1e-5); });
    const Workspace work =
        Work(ops::RmsNormBackwardWorkBytes(DeviceKind::kGpu, tokens_, s_.hidden, x.element_size()));
    const at::Tensor reciprocals = std::get<1>(at::_fused_rms_norm(x, {s_.hidden}, weight, 1e-5));
    rows_.Moves(
        "rms_norm backward, residual added", Bytes({x, grad, residual, y}),
        [&] {
          ops_.RmsNormBackward(grad, x, weight, {1e-5}, residual, false, y, false, grad_weight, work)();
        },
        [&] {
          std::get<0>(at::_fused_rms_norm_backward(grad, x, {s_.hidden}, reciprocals, weight, {true, true}))
              .add_(residual);
        });
  }

  void Rotation() {
    const AttentionShape& a = s_.attention;
    at::Tensor cosines = at::empty({a.length, a.head_dim / 2});
    at::Tensor sines = at::empty({a.length, a.head_dim / 2});
    ops::RopeTables(500000, {}, cosines, sines);
    const at::Tensor c = cosines.to(at::kCUDA);
    const at::Tensor s = sines.to(at::kCUDA);
    at::Tensor qkv = at::randn({tokens_, qkv_}, kBf16);
    const int64_t heads = a.heads + a.kv_heads;
    const at::Tensor x =
        qkv.narrow(1, 0, heads * a.head_dim).view({a.sequences, a.length, heads, a.head_dim});
    const at::Tensor wide_c = c.view({1, a.length, 1, -1});
    const at::Tensor wide_s = s.view({1, a.length, 1, -1});
    rows_.Moves(
        "rope", 2 * Bytes({x}), [&] { ops_.Rope(c, s, heads, a.head_dim, qkv)(); },
        [&] {
          const at::Tensor first = x.narrow(3, 0, a.head_dim / 2);
          const at::Tensor second = x.narrow(3, a.head_dim / 2, a.head_dim / 2);
          at::cat({first * wide_c - second * wide_s, second * wide_c + first * wide_s}, 3).to(at::kBFloat16);
        });
  }

  void HeadNorms() {
    const AttentionShape& a = s_.attention;
    const int64_t normed_heads = a.heads + a.kv_heads;
    const at::Tensor qkv = at::randn({tokens_, qkv_}, kBf16);
    at::Tensor normed = at::empty_like(qkv);
    at::Tensor grad = at::randn({tokens_, qkv_}, kBf16);
    const at::Tensor query_weight = at::ones({a.head_dim}, kBf16);
    const at::Tensor key_weight = at::ones({a.head_dim}, kBf16);
    at::Tensor grad_query_weight = at::zeros({a.head_dim}, kFloat);
    at::Tensor grad_key_weight = at::zeros({a.head_dim}, kFloat);
    const at::Tensor x =
        qkv.narrow(1, 0, normed_heads * a.head_dim).view({tokens_, normed_heads, a.head_dim});
    const at::Tensor queries = x.narrow(1, 0, a.heads);
    const at::Tensor keys = x.narrow(1, a.heads, a.kv_heads);
    rows_.Moves(
        "norms of query and key heads", Bytes({qkv, normed}),
        [&] { ops_.HeadNorm(qkv, a.heads, a.kv_heads, query_weight, key_weight, {1e-5}, normed)(); },
        [&] {
          at::_fused_rms_norm(queries, {a.head_dim}, query_weight, 1e-5);
          at::_fused_rms_norm(keys, {a.head_dim}, key_weight, 1e-5);
        });
    const Workspace work =
        Work(ops::HeadNormBackwardWorkBytes(DeviceKind::kGpu, tokens_, a.head_dim, qkv.element_size()));
    const at::Tensor query_reciprocals =
        std::get<1>(at::_fused_rms_norm(queries, {a.head_dim}, query_weight, 1e-5));
    const at::Tensor key_reciprocals = std::get<1>(at::_fused_rms_norm(keys, {a.head_dim}, key_weight, 1e-5));
    // ATen takes gradients of queries and of keys apart, each without gaps.
    const at::Tensor grad_queries = at::randn(queries.sizes(), kBf16);
    const at::Tensor grad_keys = at::randn(keys.sizes(), kBf16);
    rows_.Moves(
        "norms of query and key heads, backward", 3 * Bytes({x}),
        [&] {
          ops_.HeadNormBackward(qkv, a.heads, a.kv_heads, query_weight, key_weight, {1e-5},
                                /*add_weights=*/false, grad, grad_query_weight, grad_key_weight, work)();
        },
        [&] {
          at::_fused_rms_norm_backward(grad_queries, queries, {a.head_dim}, query_reciprocals, query_weight,
                                       {true, true});
          at::_fused_rms_norm_backward(grad_keys, keys, {a.head_dim}, key_reciprocals, key_weight,
                                       {true, true});
        });
  }

  // Heads as long as the shape's, half as much again of them rotated apart, as DeepSeek-V2's are.
  void LatentHeads() {
    const AttentionShape& a = s_.attention;
    const ops::LatentHeads heads{
        .heads = a.heads, .content = a.head_dim, .rotary = a.head_dim / 2, .value = a.head_dim};
    constexpr int64_t kRank = 512;
    at::Tensor query = at::randn({tokens_, heads.heads * heads.head_dim()}, kBf16);
    at::Tensor key_value = at::randn({tokens_, heads.heads * (heads.content + heads.value)}, kBf16);
    at::Tensor down = at::randn({tokens_, kRank + heads.rotary}, kBf16);
    at::Tensor qkv = at::empty({tokens_, 3 * heads.heads * heads.head_dim()}, kBf16);
    const at::Tensor key_rotary = down.narrow(1, kRank, heads.rotary);
    const double bytes = Bytes({query, key_value, key_rotary});

    // For ATen, the slices that are copied (ops/latent_heads.h). All heads share a key's rotary part.
    struct Slice {
      at::Tensor packed;
      at::Tensor apart;
    };
    std::vector<Slice> slices;
    const at::Tensor packed = qkv.view({tokens_, 3, heads.heads, heads.head_dim()});
    const auto add_slices = [&](const at::Tensor& to, const at::Tensor& content, const at::Tensor& rotary) {
      const int64_t half = heads.head_dim() / 2;
      const int64_t turned = heads.rotary / 2;
      for (const int64_t i : {0, 1}) {
        const at::Tensor to_half = to.narrow(2, i * half, half);
        slices.push_back({to_half.narrow(2, 0, turned), rotary.slice(2, i, heads.rotary, 2)});
        slices.push_back({to_half.narrow(2, turned, half - turned),
                          content.narrow(2, i * (half - turned), half - turned)});
      }
    };
    const at::Tensor queries = query.view({tokens_, heads.heads, heads.head_dim()});
    add_slices(packed.select(1, 0), queries.narrow(2, 0, heads.content),
               queries.narrow(2, heads.content, heads.rotary));
    const at::Tensor keys_values = key_value.view({tokens_, heads.heads, heads.content + heads.value});
    add_slices(packed.select(1, 1), keys_values.narrow(2, 0, heads.content),
               key_rotary.view({tokens_, 1, heads.rotary}));
    const at::Tensor values = packed.select(1, 2);
    slices.push_back({values.narrow(2, 0, heads.value), keys_values.narrow(2, heads.content, heads.value)});
    rows_.Moves(
        "latent heads packed", bytes + Bytes({qkv}),
        [&] { ops_.PackLatentHeads(heads, query, key_value, down, qkv)(); },
        [&] {
          for (const Slice& slice : slices) {
            slice.packed.copy_(slice.apart);
          }
          values.narrow(2, heads.value, heads.head_dim() - heads.value).zero_();
        });
    // The gradients of the zeros behind the values are not read.
    const double zeros = Bytes({query}) * static_cast<double>(heads.head_dim() - heads.value) /
                         static_cast<double>(heads.head_dim());
    rows_.Moves(
        "latent heads unpacked", bytes + Bytes({qkv}) - zeros,
        [&] { ops_.UnpackLatentHeads(heads, qkv, query, key_value, down)(); },
        [&] {
          for (const Slice& slice : slices) {
            const bool shared = slice.apart.size(1) != heads.heads;
            slice.apart.copy_(shared ? slice.packed.sum({1}, /*keepdim=*/true) : slice.packed);
          }
        });
  }

  void Activation() {
    const at::Tensor gate_up = at::randn({tokens_, 2 * s_.inner}, kBf16);
    const at::Tensor gate = gate_up.narrow(1, 0, s_.inner);
    const at::Tensor up = gate_up.narrow(1, s_.inner, s_.inner);
    at::Tensor activated = at::randn({tokens_, s_.inner}, kBf16);
    at::Tensor grad = at::empty_like(gate_up);
    rows_.Moves(
        "swiglu", Bytes({gate_up, activated}), [&] { ops_.SwiGlu(gate_up, activated)(); },
        [&] { at::silu(gate) * up; });
    rows_.Moves(
        "swiglu backward, activation recomputed", 2 * Bytes({gate_up, activated}),
        [&] { ops_.SwiGluBackward(gate_up, activated, grad, activated)(); },
        [&] {
          const at::Tensor silu = at::silu(gate);
          const at::Tensor product = silu * up;
          const at::Tensor grad_up = activated * silu;
          at::silu_backward(activated * up, gate);
        });
  }

  // y = x W^T and its backwards, of every matrix of a layer and the head's. A layer adds its residual stream
  // to what two of them compute; the plain rows show what that costs.
  void Products() {
    struct Matrix {
      const char* name;
      int64_t outputs;
      int64_t inputs;
      bool adds_residual = false;
    };
    for (const Matrix& m : std::vector<Matrix>{{"qkv", qkv_, s_.hidden},
                                               {"output", s_.hidden, query_, true},
                                               {"gate_up", 2 * s_.inner, s_.hidden},
                                               {"down", s_.hidden, s_.inner, true},
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
      rows_.Computes(
          name + " grad x", flops,
          [&] { ops_.LinearBackwardInput(y, weight, /*add=*/false, grad_x, work)(); },
          [&] { at::mm_out(grad_x, y, weight); });
      rows_.Computes(
          name + " grad weight", flops, [&] { ops_.LinearBackwardWeight(y, x, false, grad_weight, work)(); },
          [&] { at::mm_out(grad_weight, y.t(), x); });
      at::Tensor sums = at::zeros(weight.sizes(), kFloat);
      rows_.Computes(
          name + " grad weight in float", flops,
          [&] { ops_.LinearBackwardWeight(y, x, false, sums, work)(); },
          [&] { at::mm_out(sums, y.t(), x, at::kFloat); });
      rows_.Computes(
          name, flops, [&] { ops_.Linear(x, weight, at::Tensor(), y, work)(); },
          [&] { at::mm_out(y, x, weight.t()); });
      if (m.adds_residual) {
        const at::Tensor residual = at::randn({tokens_, m.outputs}, kBf16);
        rows_.Computes(
            name + " with a residual", flops, [&] { ops_.Linear(x, weight, residual, y, work)(); },
            [&] { at::addmm_out(y, residual, x, weight.t()); });
      }
    }
  }

  void Loss() {
    at::Tensor logits = at::randn({tokens_, s_.vocabulary}, kBf16);
    const at::Tensor targets =
        at::randint(s_.vocabulary, {s_.attention.sequences, s_.attention.length}, kBf16.dtype(at::kLong));
    at::Tensor lse = at::empty({tokens_}, kFloat);
    at::Tensor loss = at::empty({1}, kFloat.dtype(at::kDouble));
    rows_.Moves(
        "cross entropy and its backward, in place", 2 * Bytes({logits}),
        [&] { ops_.CrossEntropy(logits, targets, lse, loss, logits)(); },
        [&] {
          const at::Tensor flat = targets.view({-1});
          const at::Tensor logarithms = at::_log_softmax(logits, 1, /*half_to_float=*/false);
          const auto [value, weight] = at::nll_loss_forward(logarithms, flat, {}, at::Reduction::Mean, -100);
          const at::Tensor grad = at::nll_loss_backward(at::ones({}, kBf16), logarithms, flat, {},
                                                        at::Reduction::Mean, -100, weight);
          at::_log_softmax_backward_data(grad, logarithms, 1, at::kBFloat16);
        });
  }

  // Distributed as the bytes of a text are: 91 ids, of which the most frequent is a fifth.
  at::Tensor BytesOfText() const {
    std::vector<double> weights;
    for (int id = 1; id <= 91; ++id) {
      weights.push_back(1.0 / id);
    }
    std::discrete_distribution<int64_t> distribution(weights.begin(), weights.end());
    std::mt19937_64 engine(2026);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < tokens_; ++i) {
      ids.push_back(distribution(engine));
    }
    return at::tensor(ids, at::kLong).to(at::kCUDA).view({s_.attention.sequences, s_.attention.length});
  }

  void Tokens() {
    const at::Tensor table = at::randn({s_.vocabulary, s_.hidden}, kBf16);
    const at::Tensor ids =
        at::randint(s_.vocabulary, {s_.attention.sequences, s_.attention.length}, kBf16.dtype(at::kLong));
    at::Tensor hidden = at::randn({tokens_, s_.hidden}, kBf16);
    at::Tensor grad_table = at::zeros_like(table);
    const Workspace work = Work(ops::EmbeddingBackwardWorkBytes(DeviceKind::kGpu, tokens_));
    rows_.Moves(
        "embedding backward", Bytes({hidden, grad_table}),
        [&] { ops_.EmbeddingBackward(ids, hidden, false, grad_table, work)(); },
        [&] { at::embedding_dense_backward(hidden, ids.view({-1}), s_.vocabulary, -1, false); });
    const at::Tensor of_text = BytesOfText();
    rows_.Moves(
        "embedding backward, tokens of bytes", Bytes({hidden, grad_table}),
        [&] { ops_.EmbeddingBackward(of_text, hidden, false, grad_table, work)(); },
        [&] { at::embedding_dense_backward(hidden, of_text.view({-1}), s_.vocabulary, -1, false); });
    rows_.Moves(
        "embedding", 2 * Bytes({hidden}), [&] { ops_.Embedding(ids, table, hidden)(); },
        [&] { at::embedding(table, ids.view({-1})); });
  }

  const Shape& s_;
  const ShapeRows rows_;
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
  bool mixer = argc == 1;
  bool delta_net = argc == 1;
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string(kMixerName)) {
      mixer = true;
      continue;
    }
    if (argv[i] == std::string(kDeltaName)) {
      delta_net = true;
      continue;
    }
    const auto* const found = std::find_if(std::begin(kShapes), std::end(kShapes),
                                           [&](const Shape& s) { return s.name == std::string(argv[i]); });
    if (found == std::end(kShapes)) {
      std::fprintf(
          stderr,
          "no shape '%s'; allowed: llama-3-8b, qwen2.5-7b, deepseek-v3, demo, nemotron-h-8b, qwen3-next\n",
          argv[i]);
      return 2;
    }
    shapes.push_back(found);
  }
  if (argc == 1) {
    for (const Shape& shape : kShapes) {
      shapes.push_back(&shape);
    }
  }
  const Bounds bounds = MeasureBounds();
  for (const Shape* shape : shapes) {
    Bench(*shape, bounds).Run();
  }
  if (mixer) {
    tandem::bench::TimeMixer(kMixer, ShapeRows(kMixerName, bounds));
  }
  if (delta_net) {
    tandem::bench::TimeDeltaNet(kDeltaNet, ShapeRows(kDeltaName, bounds));
  }
  return 0;
}
