// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <utility>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "model/rotary_tables.h"
#include "ops/rope.h"

namespace tandem::model {

namespace {

// By the names of attention.cc.
struct AttentionForward {
  at::Tensor x, documents, hidden, qkv, context, lse;
  at::Tensor norm, weight_qkv, weight_output;
  at::Tensor query_norm, key_norm;  // undefined where heads are not normalised
  at::Tensor normed;
  at::Tensor rotated;  // may be qkv itself
  ops::Workspace work;
  ops::Workspace products;
};

struct AttentionBackwardInput {
  at::Tensor x, documents, qkv, context, lse, grad_hidden;
  at::Tensor normed, grad_qkv, grad_norm;
  at::Tensor grad_x;
  bool add_x = false;
  at::Tensor norm, weight_qkv, weight_output;
  at::Tensor query_norm, key_norm, grad_query_norm, grad_key_norm;
  at::Tensor grad_normed, grad_context;
  at::Tensor rotated;
  ops::Workspace work, norm_work, head_norm_work;
  ops::Workspace products;
};

struct AttentionBackwardWeight {
  at::Tensor context, grad_hidden;
  at::Tensor normed, grad_qkv, norm_sums, query_norm_sums, key_norm_sums;
  at::Tensor grad_norm, grad_weight_qkv, grad_weight_output, grad_query_norm, grad_key_norm;
  bool add = false;  // to the parameters' gradients
  ops::Workspace products;
};

class AttentionNode final : public SplitNode {
 public:
  AttentionNode(const NodeContext& context, std::shared_ptr<const RotaryTables> tables)
      : SplitNode(context, DeclareAttention(context.shapes)),
        tables_(std::move(tables)),
        shape_(s_.attention()) {
    ops_.PrepareAttention(shape_, s_.compute_bytes);
  }

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    AttentionForward t{.x = in.Value("x"),
                       .documents = DocumentStarts(in),
                       .hidden = in.Value("hidden"),
                       .qkv = in.Value("qkv"),
                       .context = in.Value("context"),
                       .lse = in.Value("lse"),
                       .norm = in.Parameter("norm"),
                       .weight_qkv = in.Parameter("qkv"),
                       .weight_output = in.Parameter("output"),
                       .normed = in.Scratch("normed"),
                       .work = in.Work("work"),
                       .products = in.Work("products")};
    t.rotated = t.qkv;
    if (s_.norms_heads) {
      t.query_norm = in.Parameter("query_norm");
      t.key_norm = in.Parameter("key_norm");
      t.rotated = in.Scratch("rotated");
    }
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackwardInput(BoundTensors& in) const override {
    AttentionBackwardInput t{.x = in.Value("x"),
                             .documents = DocumentStarts(in),
                             .qkv = in.Value("qkv"),
                             .context = in.Value("context"),
                             .lse = in.Value("lse"),
                             .grad_hidden = in.Gradient("hidden"),
                             .normed = in.Value("normed"),
                             .grad_qkv = in.Value("grad_qkv"),
                             .grad_norm = in.Value("grad_norm"),
                             .grad_x = in.Gradient("x"),
                             .add_x = in.AddsToGradient("x"),
                             .norm = in.Parameter("norm"),
                             .weight_qkv = in.Parameter("qkv"),
                             .weight_output = in.Parameter("output"),
                             .grad_normed = in.Scratch("grad_normed"),
                             .grad_context = in.Scratch("grad_context"),
                             .work = in.Work("work"),
                             .norm_work = in.Work("norm_work"),
                             .products = in.Work("products")};
    t.rotated = t.qkv;
    if (s_.norms_heads) {
      t.query_norm = in.Parameter("query_norm");
      t.key_norm = in.Parameter("key_norm");
      t.grad_query_norm = in.Value("grad_query_norm");
      t.grad_key_norm = in.Value("grad_key_norm");
      t.head_norm_work = in.Work("head_norm_work");
      t.rotated = in.Scratch("rotated");
    }
    return [this, t]() mutable { BackwardInput(t); };
  }

  BoundPass BindBackwardWeight(BoundTensors& in) const override {
    AttentionBackwardWeight t{.context = in.Value("context"),
                              .grad_hidden = in.Gradient("hidden"),
                              .normed = in.Value("normed"),
                              .grad_qkv = in.Value("grad_qkv"),
                              .norm_sums = in.Value("grad_norm"),
                              .grad_norm = in.ParameterGradient("norm"),
                              .grad_weight_qkv = in.ParameterGradient("qkv"),
                              .grad_weight_output = in.ParameterGradient("output"),
                              .add = in.AddsToParameterGradient("norm"),
                              .products = in.Work("products")};
    if (s_.norms_heads) {
      t.query_norm_sums = in.Value("grad_query_norm");
      t.key_norm_sums = in.Value("grad_key_norm");
      t.grad_query_norm = in.ParameterGradient("query_norm");
      t.grad_key_norm = in.ParameterGradient("key_norm");
    }
    return [this, t]() mutable { BackwardWeight(t); };
  }

  // A recompute leaves out what was kept, from the end.
  void Forward(AttentionForward& t) const {
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    ops_.Linear(t.normed, t.weight_qkv, /*residual=*/at::Tensor(), t.qkv, t.products);
    if (!s_.norms_heads) {
      Rotate(t.qkv);
    }
    if (!t.context.defined()) {
      return;
    }
    NormAndRotateHeads(t);
    ops_.Attention(shape_, t.rotated, t.documents, t.context, t.lse, t.work);
    if (!t.hidden.defined()) {
      return;
    }
    ops_.Linear(t.context, t.weight_output, /*residual=*/t.x, t.hidden, t.products);
  }

  void BackwardInput(AttentionBackwardInput& t) const {
    ops_.LinearBackwardInput(t.grad_hidden, t.weight_output, /*add=*/false, t.grad_context, t.products);
    NormAndRotateHeads(t);
    ops_.AttentionBackward(shape_, t.rotated, t.documents, t.context, t.lse, t.grad_context, t.grad_qkv,
                           t.work);
    ops_.RopeBackward(*tables_->cosines, *tables_->sines, s_.heads + s_.kv_heads, t.grad_qkv);
    if (s_.norms_heads) {
      ops_.HeadNormBackward(t.qkv, s_.heads, s_.kv_heads, t.query_norm, t.key_norm, epsilon_, /*add=*/false,
                            t.grad_qkv, t.grad_query_norm, t.grad_key_norm, t.head_norm_work);
    }
    ops_.LinearBackwardInput(t.grad_qkv, t.weight_qkv, /*add=*/false, t.grad_normed, t.products);
    ops_.RmsNormBackward(t.grad_normed, t.x, t.norm, epsilon_, /*residual=*/t.grad_hidden, t.add_x, t.grad_x,
                         /*add_weight=*/false, t.grad_norm, t.norm_work);
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
  }

  void BackwardWeight(AttentionBackwardWeight& t) const {
    ops_.LinearBackwardWeight(t.grad_hidden, t.context, t.add, t.grad_weight_output, t.products);
    ops_.LinearBackwardWeight(t.grad_qkv, t.normed, t.add, t.grad_weight_qkv, t.products);
    CopyOrAdd(t.norm_sums, t.add, t.grad_norm);
    if (s_.norms_heads) {
      CopyOrAdd(t.query_norm_sums, t.add, t.grad_query_norm);
      CopyOrAdd(t.key_norm_sums, t.add, t.grad_key_norm);
    }
  }

  void Rotate(at::Tensor& qkv) const {
    ops_.Rope(*tables_->cosines, *tables_->sines, s_.heads + s_.kv_heads, qkv);
  }

  // qkv, which is kept as it was projected, to `rotated`; nothing where qkv is kept rotated.
  template <typename Tensors>
  void NormAndRotateHeads(Tensors& t) const {
    if (s_.norms_heads) {
      ops_.HeadNorm(t.qkv, s_.heads, s_.kv_heads, t.query_norm, t.key_norm, epsilon_, t.rotated);
      Rotate(t.rotated);
    }
  }

  const std::shared_ptr<const RotaryTables> tables_;
  const ops::AttentionShape shape_;
};

}  // namespace

std::unique_ptr<Node> MakeAttentionNode(const NodeContext& context,
                                        std::shared_ptr<const RotaryTables> tables) {
  return std::make_unique<AttentionNode>(context, std::move(tables));
}

}  // namespace tandem::model
