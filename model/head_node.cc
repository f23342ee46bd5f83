// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// By the names of head.cc.
struct HeadForward {
  at::Tensor x, targets;  // targets: [B, S]
  at::Tensor loss, grad_logits;
  at::Tensor norm, weight;
  at::Tensor normed, lse;
  ops::Workspace products;
};

struct HeadBackward {
  at::Tensor x, grad_logits;
  at::Tensor grad_x;
  bool add_x = false;
  at::Tensor norm, weight;
  at::Tensor grad_norm, grad_weight;
  bool add_norm = false;
  bool add_weight = false;
  at::Tensor normed, grad_normed;
  ops::Workspace norm_work;
  ops::Workspace products;
};

class HeadNode final : public DeclaredNode {
 public:
  explicit HeadNode(const NodeContext& context) : DeclaredNode(context, DeclareHead(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    HeadForward t{.x = in.Value("x"),
                  .targets = Targets(in.Value("tokens")),
                  .loss = in.Value("loss"),
                  .grad_logits = in.Value("grad_logits"),
                  .norm = in.Parameter("norm"),
                  .weight = in.Parameter("weight"),
                  .normed = in.Scratch("normed"),
                  .lse = in.Scratch("lse"),
                  .products = in.Work("products")};
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    HeadBackward t{.x = in.Value("x"),
                   .grad_logits = in.Value("grad_logits"),
                   .grad_x = in.Gradient("x"),
                   .add_x = in.AddsToGradient("x"),
                   .norm = in.Parameter("norm"),
                   .weight = in.Parameter("weight"),
                   .grad_norm = in.ParameterGradient("norm"),
                   .grad_weight = in.ParameterGradient("weight"),
                   .add_norm = in.AddsToParameterGradient("norm"),
                   .add_weight = in.AddsToParameterGradient("weight"),
                   .normed = in.Scratch("normed"),
                   .grad_normed = in.Scratch("grad_normed"),
                   .norm_work = in.Work("norm_work"),
                   .products = in.Work("products")};
    return [this, t]() mutable { Backward(t); };
  }

  void Forward(HeadForward& t) const {
    at::Tensor& logits = t.grad_logits;
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    ops_.Linear(t.normed, t.weight, /*residual=*/at::Tensor(), logits, t.products);
    ops_.CrossEntropy(logits, t.targets, t.lse, t.loss, t.grad_logits);
  }

  void Backward(HeadBackward& t) const {
    if (t.grad_weight.defined()) {
      ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
      ops_.LinearBackwardWeight(t.grad_logits, t.normed, t.add_weight, t.grad_weight, t.products);
    }
    ops_.LinearBackwardInput(t.grad_logits, t.weight, /*add=*/false, t.grad_normed, t.products);
    ops_.RmsNormBackward(t.grad_normed, t.x, t.norm, epsilon_, /*residual=*/at::Tensor(), t.add_x, t.grad_x,
                         t.add_norm, t.grad_norm, t.norm_work);
  }

  // [B, S] of [B, S + 1]: each token is predicted from those before it.
  at::Tensor Targets(const at::Tensor& tokens) const { return tokens.narrow(1, 1, s_.length); }
};

}  // namespace

std::unique_ptr<Node> MakeHeadNode(const NodeContext& context) { return std::make_unique<HeadNode>(context); }

}  // namespace tandem::model
