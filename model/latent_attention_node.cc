// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <utility>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "model/rotary_tables.h"
#include "ops/latent_heads.h"

namespace tandem::model {
namespace {

// The epsilon of the narrow vectors' norms: Hugging Face's DeepseekV3RMSNorm takes it whatever rms_norm_eps
// is.
constexpr double kLatentNormEpsilon = 1e-6;

// By the names of latent_attention.cc. What belongs to a narrow query is undefined where there is none.
struct LatentWeights {
  at::Tensor norm, query, query_down, query_down_norm, query_up;
  at::Tensor key_value_down, key_value_down_norm, key_value_up, output;
};

struct LatentForward {
  at::Tensor x, documents, hidden, down, qkv, context, lse, query_down;
  LatentWeights weights;
  at::Tensor normed, query, kv_latent, kv_normed, key_value, values, query_normed;
  ops::Workspace work, products;
};

struct LatentBackward {
  at::Tensor x, documents, down, qkv, context, lse, query_down, grad_hidden;
  at::Tensor grad_x;
  bool add_x = false;
  LatentWeights weights;
  LatentWeights gradients;  // undefined: of a frozen matrix
  bool add = false;         // to the parameters' gradients
  at::Tensor normed, grad_normed, grad_share, values, grad_context, grad_qkv, grad_query, grad_key_value,
      grad_down;
  at::Tensor kv_latent, kv_normed, grad_kv_normed, grad_kv_latent;
  at::Tensor query_normed, grad_query_normed, grad_query_down;
  ops::Workspace work, norm_work, latent_norm_work, products;
};

class LatentAttentionNode final : public DeclaredNode {
 public:
  LatentAttentionNode(const NodeContext& context, std::shared_ptr<const RotaryTables> tables)
      : DeclaredNode(context, DeclareLatentAttention(context.shapes)),
        tables_(std::move(tables)),
        shape_(s_.attention()),
        heads_(s_.latent_heads()),
        narrow_query_(s_.latent.query_rank > 0) {
    ops_.PrepareAttention(shape_, s_.compute_bytes);
  }

 private:
  template <typename Take>
  LatentWeights Weights(const Take& take) const {
    LatentWeights weights{.norm = take("norm"),
                          .key_value_down = take("key_value_down"),
                          .key_value_down_norm = take("key_value_down_norm"),
                          .key_value_up = take("key_value_up"),
                          .output = take("output")};
    if (narrow_query_) {
      weights.query_down = take("query_down");
      weights.query_down_norm = take("query_down_norm");
      weights.query_up = take("query_up");
    } else {
      weights.query = take("query");
    }
    return weights;
  }

  BoundPass BindForward(BoundTensors& in) const override {
    LatentForward t{.x = in.Value("x"),
                    .documents = DocumentStarts(in),
                    .hidden = in.Value("hidden"),
                    .down = in.Value("down"),
                    .qkv = in.Value("qkv"),
                    .context = in.Value("context"),
                    .lse = in.Value("lse"),
                    .weights = Weights([&](const char* name) { return in.Parameter(name); }),
                    .normed = in.Scratch("normed"),
                    .query = in.Scratch("query"),
                    .kv_latent = in.Scratch("kv_latent"),
                    .kv_normed = in.Scratch("kv_normed"),
                    .key_value = in.Scratch("key_value"),
                    .values = in.Scratch("values"),
                    .work = in.Work("work"),
                    .products = in.Work("products")};
    if (narrow_query_) {
      t.query_down = in.Value("query_down");
      t.query_normed = in.Scratch("query_normed");
    }
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    LatentBackward t{
        .x = in.Value("x"),
        .documents = DocumentStarts(in),
        .down = in.Value("down"),
        .qkv = in.Value("qkv"),
        .context = in.Value("context"),
        .lse = in.Value("lse"),
        .grad_hidden = in.Gradient("hidden"),
        .grad_x = in.Gradient("x"),
        .add_x = in.AddsToGradient("x"),
        .weights = Weights([&](const char* name) { return in.Parameter(name); }),
        .gradients = Weights([&](const char* name) { return in.ParameterGradient(name); }),
        .add = in.AddsToParameterGradient("norm"),
        .normed = in.Scratch("normed"),
        .grad_normed = in.Scratch("grad_normed"),
        .grad_share = in.Scratch("grad_share"),
        .values = in.Scratch("values"),
        .grad_context = in.Scratch("grad_context"),
        .grad_qkv = in.Scratch("grad_qkv"),
        .grad_query = in.Scratch("grad_query"),
        .grad_key_value = in.Scratch("grad_key_value"),
        .grad_down = in.Scratch("grad_down"),
        .kv_latent = in.Scratch("kv_latent"),
        .kv_normed = in.Scratch("kv_normed"),
        .grad_kv_normed = in.Scratch("grad_kv_normed"),
        .grad_kv_latent = in.Scratch("grad_kv_latent"),
        .work = in.Work("work"),
        .norm_work = in.Work("norm_work"),
        .latent_norm_work = in.Work("latent_norm_work"),
        .products = in.Work("products"),
    };
    if (narrow_query_) {
      t.query_down = in.Value("query_down");
      t.query_normed = in.Scratch("query_normed");
      t.grad_query_normed = in.Scratch("grad_query_normed");
      t.grad_query_down = in.Scratch("grad_query_down");
    }
    return [this, t]() mutable { Backward(t); };
  }

  // A recompute leaves out what was kept, from the end.
  void Forward(LatentForward& t) const {
    ops_.RmsNorm(t.x, t.weights.norm, epsilon_, t.normed);
    ops_.Linear(t.normed, t.weights.key_value_down, /*residual=*/at::Tensor(), t.down, t.products);
    if (narrow_query_) {
      ops_.Linear(t.normed, t.weights.query_down, /*residual=*/at::Tensor(), t.query_down, t.products);
    }
    if (!t.qkv.defined()) {
      return;
    }
    if (narrow_query_) {
      ops_.RmsNorm(t.query_down, t.weights.query_down_norm, kLatentNormEpsilon, t.query_normed);
      ops_.Linear(t.query_normed, t.weights.query_up, /*residual=*/at::Tensor(), t.query, t.products);
    } else {
      ops_.Linear(t.normed, t.weights.query, /*residual=*/at::Tensor(), t.query, t.products);
    }
    NormLatent(t);
    ops_.Linear(t.kv_normed, t.weights.key_value_up, /*residual=*/at::Tensor(), t.key_value, t.products);
    ops_.PackLatentHeads(heads_, t.query, t.key_value, t.down, t.qkv);
    ops_.Rope(*tables_->cosines, *tables_->sines, 2 * s_.heads, t.qkv);
    if (!t.context.defined()) {
      return;
    }
    ops_.Attention(shape_, t.qkv, t.documents, t.context, t.lse, t.work);
    if (!t.hidden.defined()) {
      return;
    }
    ValuesOf(t.values).copy_(ValuesIn(t.context));
    ops_.Linear(t.values, t.weights.output, /*residual=*/t.x, t.hidden, t.products);
  }

  void Backward(LatentBackward& t) const {
    ops_.LinearBackwardInput(t.grad_hidden, t.weights.output, /*add=*/false, t.values, t.products);
    t.grad_context.zero_();
    ValuesIn(t.grad_context).copy_(ValuesOf(t.values));
    if (t.gradients.output.defined()) {
      ValuesOf(t.values).copy_(ValuesIn(t.context));
      ops_.LinearBackwardWeight(t.grad_hidden, t.values, t.add, t.gradients.output, t.products);
    }
    ops_.AttentionBackward(shape_, t.qkv, t.documents, t.context, t.lse, t.grad_context, t.grad_qkv, t.work);
    ops_.RopeBackward(*tables_->cosines, *tables_->sines, 2 * s_.heads, t.grad_qkv);
    ops_.UnpackLatentHeads(heads_, t.grad_qkv, t.grad_query, t.grad_key_value, t.grad_down);
    ops_.RmsNorm(t.x, t.weights.norm, epsilon_, t.normed);
    BackwardKeyValue(t);
    BackwardQuery(t);
    t.grad_normed.add_(t.grad_share);
    ops_.RmsNormBackward(t.grad_normed, t.x, t.weights.norm, epsilon_, /*residual=*/t.grad_hidden, t.add_x,
                         t.grad_x, t.add, t.gradients.norm, t.norm_work);
  }

  // From grad_key_value and the rotary columns of grad_down to grad_normed.
  void BackwardKeyValue(LatentBackward& t) const {
    NormLatent(t);
    if (t.gradients.key_value_up.defined()) {
      ops_.LinearBackwardWeight(t.grad_key_value, t.kv_normed, t.add, t.gradients.key_value_up, t.products);
    }
    ops_.LinearBackwardInput(t.grad_key_value, t.weights.key_value_up, /*add=*/false, t.grad_kv_normed,
                             t.products);
    ops_.RmsNormBackward(t.grad_kv_normed, t.kv_latent, t.weights.key_value_down_norm, kLatentNormEpsilon,
                         /*residual=*/at::Tensor(), /*add_x=*/false, t.grad_kv_latent, t.add,
                         t.gradients.key_value_down_norm, t.latent_norm_work);
    t.grad_down.narrow(1, 0, s_.latent.kv_rank).copy_(t.grad_kv_latent);
    if (t.gradients.key_value_down.defined()) {
      ops_.LinearBackwardWeight(t.grad_down, t.normed, t.add, t.gradients.key_value_down, t.products);
    }
    ops_.LinearBackwardInput(t.grad_down, t.weights.key_value_down, /*add=*/false, t.grad_normed, t.products);
  }

  // From grad_query to grad_share.
  void BackwardQuery(LatentBackward& t) const {
    if (!narrow_query_) {
      if (t.gradients.query.defined()) {
        ops_.LinearBackwardWeight(t.grad_query, t.normed, t.add, t.gradients.query, t.products);
      }
      ops_.LinearBackwardInput(t.grad_query, t.weights.query, /*add=*/false, t.grad_share, t.products);
      return;
    }
    if (t.gradients.query_up.defined()) {
      ops_.RmsNorm(t.query_down, t.weights.query_down_norm, kLatentNormEpsilon, t.query_normed);
      ops_.LinearBackwardWeight(t.grad_query, t.query_normed, t.add, t.gradients.query_up, t.products);
    }
    ops_.LinearBackwardInput(t.grad_query, t.weights.query_up, /*add=*/false, t.grad_query_normed,
                             t.products);
    ops_.RmsNormBackward(t.grad_query_normed, t.query_down, t.weights.query_down_norm, kLatentNormEpsilon,
                         /*residual=*/at::Tensor(), /*add_x=*/false, t.grad_query_down, t.add,
                         t.gradients.query_down_norm, t.latent_norm_work);
    if (t.gradients.query_down.defined()) {
      ops_.LinearBackwardWeight(t.grad_query_down, t.normed, t.add, t.gradients.query_down, t.products);
    }
    ops_.LinearBackwardInput(t.grad_query_down, t.weights.query_down, /*add=*/false, t.grad_share,
                             t.products);
  }

  template <typename Tensors>
  void NormLatent(Tensors& t) const {
    t.kv_latent.copy_(t.down.narrow(1, 0, s_.latent.kv_rank));
    ops_.RmsNorm(t.kv_latent, t.weights.key_value_down_norm, kLatentNormEpsilon, t.kv_normed);
  }

  // [T, heads, value_head_dim], of heads of values alone, and of a context's, which hold zeros behind them.
  at::Tensor ValuesOf(const at::Tensor& values) const {
    return values.view({s_.tokens, s_.heads, s_.latent.value_head_dim});
  }
  at::Tensor ValuesIn(const at::Tensor& context) const {
    return context.view({s_.tokens, s_.heads, s_.head_dim}).narrow(2, 0, s_.latent.value_head_dim);
  }

  const std::shared_ptr<const RotaryTables> tables_;
  const ops::AttentionShape shape_;
  const ops::LatentHeads heads_;
  const bool narrow_query_;
};

}  // namespace

std::unique_ptr<Node> MakeLatentAttentionNode(const NodeContext& context,
                                              std::shared_ptr<const RotaryTables> tables) {
  return std::make_unique<LatentAttentionNode>(context, std::move(tables));
}

}  // namespace tandem::model
