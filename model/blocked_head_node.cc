// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// By the names of blocked_head.cc.
struct BlockedHeadForward {
  at::Tensor x, targets;  // targets: [B, S]
  at::Tensor loss, lse;
  at::Tensor norm, weight;
  at::Tensor normed, logits, target_logits;
  ops::Workspace products;
};

struct BlockedHeadBackward {
  at::Tensor x, targets, lse;
  at::Tensor grad_x;
  bool add_x = false;
  at::Tensor norm, weight;
  at::Tensor grad_norm, grad_weight;
  bool add_norm = false;
  bool add_weight = false;
  at::Tensor normed, logits, grad_normed;
  at::Tensor grad_sums;  // grad_normed itself where that is of the type of statistics
  ops::Workspace norm_work;
  ops::Workspace products;
};

class BlockedHeadNode final : public DeclaredNode {
 public:
  explicit BlockedHeadNode(const NodeContext& context)
      : DeclaredNode(context, DeclareBlockedHead(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    BlockedHeadForward t{.x = in.Value("x"),
                         .targets = Targets(in.Value("tokens")),
                         .loss = in.Value("loss"),
                         .lse = in.Value("lse"),
                         .norm = in.Parameter("norm"),
                         .weight = in.Parameter("weight"),
                         .normed = in.Scratch("normed"),
                         .logits = in.Scratch("logits"),
                         .target_logits = in.Scratch("target_logits"),
                         .products = in.Work("products")};
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    BlockedHeadBackward t{.x = in.Value("x"),
                          .targets = Targets(in.Value("tokens")),
                          .lse = in.Value("lse"),
                          .grad_x = in.Gradient("x"),
                          .add_x = in.AddsToGradient("x"),
                          .norm = in.Parameter("norm"),
                          .weight = in.Parameter("weight"),
                          .grad_norm = in.ParameterGradient("norm"),
                          .grad_weight = in.ParameterGradient("weight"),
                          .add_norm = in.AddsToParameterGradient("norm"),
                          .add_weight = in.AddsToParameterGradient("weight"),
                          .normed = in.Scratch("normed"),
                          .logits = in.Scratch("logits"),
                          .grad_normed = in.Scratch("grad_normed"),
                          .norm_work = in.Work("norm_work"),
                          .products = in.Work("products")};
    t.grad_sums = s_.widens ? in.Scratch("grad_sums") : t.grad_normed;
    return [this, t]() mutable { Backward(t); };
  }

  void Forward(BlockedHeadForward& t) const {
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    ForEachBlock(t.weight, t.logits, [&](int64_t first, const at::Tensor& weight, at::Tensor& logits) {
      ops_.Linear(t.normed, weight, /*residual=*/at::Tensor(), logits, t.products);
      ops_.CrossEntropyBlock(logits, t.targets, first, s_.vocabulary, t.lse, t.target_logits, t.loss);
    });
  }

  void Backward(BlockedHeadBackward& t) const {
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    ForEachBlock(t.weight, t.logits, [&](int64_t first, const at::Tensor& weight, at::Tensor& logits) {
      ops_.Linear(t.normed, weight, /*residual=*/at::Tensor(), logits, t.products);
      ops_.CrossEntropyBlockBackward(t.targets, first, s_.vocabulary, t.lse, logits);
      if (t.grad_weight.defined()) {
        at::Tensor grad_weight = t.grad_weight.narrow(0, first, weight.size(0));
        ops_.LinearBackwardWeight(logits, t.normed, t.add_weight, grad_weight, t.products);
      }
      ops_.LinearBackwardInput(logits, weight, /*add=*/first > 0, t.grad_sums, t.products);
    });
    if (s_.widens) {
      t.grad_normed.copy_(t.grad_sums);
    }
    ops_.RmsNormBackward(t.grad_normed, t.x, t.norm, epsilon_, /*residual=*/at::Tensor(), t.add_x, t.grad_x,
                         t.add_norm, t.grad_norm, t.norm_work);
  }

  // visit(first, the weight's rows of the block, memory for its logits): the last block may be narrower.
  template <typename Visit>
  void ForEachBlock(const at::Tensor& weight, const at::Tensor& memory, const Visit& visit) const {
    for (int64_t first = 0; first < s_.vocabulary; first += s_.logit_columns) {
      const int64_t columns = std::min(s_.logit_columns, s_.vocabulary - first);
      at::Tensor logits = memory.view({-1}).narrow(0, 0, s_.tokens * columns).view({s_.tokens, columns});
      visit(first, weight.narrow(0, first, columns), logits);
    }
  }

  // [B, S] of [B, S + 1]: each token is predicted from those before it.
  at::Tensor Targets(const at::Tensor& tokens) const { return tokens.narrow(1, 1, s_.length); }
};

}  // namespace

std::unique_ptr<Node> MakeBlockedHeadNode(const NodeContext& context) {
  return std::make_unique<BlockedHeadNode>(context);
}

}  // namespace tandem::model
