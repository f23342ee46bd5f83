// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/rope.h"

namespace tandem::model {

namespace {

// Tensors have the names of attention.cc; those of the norms of heads are undefined where heads have none.
class AttentionNode final : public SplitNode {
 public:
  AttentionNode(const NodeContext& context, std::shared_ptr<const RotaryTables> tables)
      : SplitNode(context, kAttention.declare(context.shapes)),
        tables_(std::move(tables)),
        shape_(s_.attention()) {
    ops_.PrepareAttention(shape_, s_.compute_bytes);
  }

 private:
  // A recompute leaves out what was kept, from the end.
  BoundPass BindForward(BoundTensors& in) const override {
    at::Tensor qkv = in.Value("qkv");
    return [this, qkv, x = in.Value("x"), documents = DocumentStarts(in), hidden = in.Value("hidden"),
            context = in.Value("context"), lse = in.Value("lse"), norm = in.Parameter("norm"),
            weight_qkv = in.Parameter("qkv"), weight_output = in.Parameter("output"),
            normed = in.Scratch("normed"), work = in.Work("work"), products = in.Work("products"),
            heads = HeadsOf(in, qkv)]() mutable {
      ops_.RmsNorm(x, norm, epsilon_, normed);
      ops_.Linear(normed, weight_qkv, /*residual=*/at::Tensor(), qkv, products);
      if (!s_.norms_heads) {
        Rotate(qkv);
      }
      if (!context.defined()) {
        return;
      }
      NormAndRotate(heads, qkv);
      ops_.Attention(shape_, heads.rotated, documents, context, lse, work);
      if (!hidden.defined()) {
        return;
      }
      ops_.Linear(context, weight_output, /*residual=*/x, hidden, products);
    };
  }

  BoundPass BindBackwardInput(BoundTensors& in) const override {
    at::Tensor qkv = in.Value("qkv");
    return [this, qkv, x = in.Value("x"), documents = DocumentStarts(in), context = in.Value("context"),
            lse = in.Value("lse"), grad_hidden = in.Gradient("hidden"), normed = in.Value("normed"),
            grad_qkv = in.Value("grad_qkv"), grad_norm = in.Value("grad_norm"), grad_x = in.Gradient("x"),
            add_x = in.AddsToGradient("x"), norm = in.Parameter("norm"), weight_qkv = in.Parameter("qkv"),
            weight_output = in.Parameter("output"), grad_normed = in.Scratch("grad_normed"),
            grad_context = in.Scratch("grad_context"), work = in.Work("work"),
            norm_work = in.Work("norm_work"), products = in.Work("products"), heads = HeadsOf(in, qkv),
            grad_query_norm = s_.norms_heads ? in.Value("grad_query_norm") : at::Tensor(),
            grad_key_norm = s_.norms_heads ? in.Value("grad_key_norm") : at::Tensor(),
            head_norm_work = s_.norms_heads ? in.Work("head_norm_work") : ops::Workspace{}]() mutable {
      ops_.LinearBackwardInput(grad_hidden, weight_output, /*add=*/false, grad_context, products);
      NormAndRotate(heads, qkv);
      ops_.AttentionBackward(shape_, heads.rotated, documents, context, lse, grad_context, grad_qkv, work);
      ops_.RopeBackward(*tables_->cosines, *tables_->sines, s_.heads + s_.kv_heads, grad_qkv);
      if (s_.norms_heads) {
        ops_.HeadNormBackward(qkv, s_.heads, s_.kv_heads, heads.query_norm, heads.key_norm, epsilon_,
                              /*add=*/false, grad_qkv, grad_query_norm, grad_key_norm, head_norm_work);
      }
      ops_.LinearBackwardInput(grad_qkv, weight_qkv, /*add=*/false, grad_normed, products);
      ops_.RmsNormBackward(grad_normed, x, norm, epsilon_, /*residual=*/grad_hidden, add_x, grad_x,
                           /*add_weight=*/false, grad_norm, norm_work);
      ops_.RmsNorm(x, norm, epsilon_, normed);
    };
  }

  BoundPass BindBackwardWeight(BoundTensors& in) const override {
    std::vector<std::string> norms = {"norm"};
    if (s_.norms_heads) {
      norms.insert(norms.end(), {"query_norm", "key_norm"});
    }
    std::vector<std::pair<at::Tensor, at::Tensor>> sums;  // as the input half has them, and where they go
    for (const std::string& name : norms) {
      sums.emplace_back(in.Value("grad_" + name), in.ParameterGradient(name));
    }
    return
        [this, sums, context = in.Value("context"), grad_hidden = in.Gradient("hidden"),
         normed = in.Value("normed"), grad_qkv = in.Value("grad_qkv"),
         grad_weight_qkv = in.ParameterGradient("qkv"), grad_weight_output = in.ParameterGradient("output"),
         add = in.AddsToParameterGradient("norm"), products = in.Work("products")]() mutable {
          ops_.LinearBackwardWeight(grad_hidden, context, add, grad_weight_output, products);
          ops_.LinearBackwardWeight(grad_qkv, normed, add, grad_weight_qkv, products);
          for (auto& [from, to] : sums) {
            CopyOrAdd(from, add, to);
          }
        };
  }

  // What attention reads: qkv itself, which is kept rotated, or where heads are normalised what is made of
  // it, which is kept as it was projected.
  struct Heads {
    at::Tensor query_norm, key_norm, rotated;
  };
  Heads HeadsOf(BoundTensors& in, const at::Tensor& qkv) const {
    return s_.norms_heads ? Heads{in.Parameter("query_norm"), in.Parameter("key_norm"), in.Scratch("rotated")}
                          : Heads{.rotated = qkv};
  }

  void NormAndRotate(Heads& heads, const at::Tensor& qkv) const {
    if (s_.norms_heads) {
      ops_.HeadNorm(qkv, s_.heads, s_.kv_heads, heads.query_norm, heads.key_norm, epsilon_, heads.rotated);
      Rotate(heads.rotated);
    }
  }

  void Rotate(at::Tensor& qkv) const {
    ops_.Rope(*tables_->cosines, *tables_->sines, s_.heads + s_.kv_heads, qkv);
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
