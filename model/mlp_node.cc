// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// By the names of mlp.cc.
struct MlpForward {
  at::Tensor x, hidden, gate_up;
  at::Tensor norm, weight_gate_up, weight_down;
  at::Tensor normed, activated;
  ops::Workspace products;
};

struct MlpBackwardInput {
  at::Tensor x, gate_up, grad_hidden;
  at::Tensor normed, activated, grad_gate_up, grad_norm;
  at::Tensor grad_x;
  bool add_x = false;
  at::Tensor norm, weight_gate_up, weight_down;
  at::Tensor grad_normed;
  ops::Workspace norm_work;
  ops::Workspace products;
};

struct MlpBackwardWeight {
  at::Tensor grad_hidden;
  at::Tensor normed, activated, grad_gate_up, norm_sums;
  at::Tensor grad_norm, grad_weight_gate_up, grad_weight_down;
  bool add = false;  // to the parameters' gradients
  ops::Workspace products;
};

class MlpNode final : public SplitNode {
 public:
  explicit MlpNode(const NodeContext& context) : SplitNode(context, DeclareMlp(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    MlpForward t{.x = in.Value("x"),
                 .hidden = in.Value("hidden"),
                 .gate_up = in.Value("gate_up"),
                 .norm = in.Parameter("norm"),
                 .weight_gate_up = in.Parameter("gate_up"),
                 .weight_down = in.Parameter("down"),
                 .normed = in.Scratch("normed"),
                 .activated = in.Scratch("activated"),
                 .products = in.Work("products")};
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackwardInput(BoundTensors& in) const override {
    MlpBackwardInput t{.x = in.Value("x"),
                       .gate_up = in.Value("gate_up"),
                       .grad_hidden = in.Gradient("hidden"),
                       .normed = in.Value("normed"),
                       .activated = in.Value("activated"),
                       .grad_gate_up = in.Value("grad_gate_up"),
                       .grad_norm = in.Value("grad_norm"),
                       .grad_x = in.Gradient("x"),
                       .add_x = in.AddsToGradient("x"),
                       .norm = in.Parameter("norm"),
                       .weight_gate_up = in.Parameter("gate_up"),
                       .weight_down = in.Parameter("down"),
                       .grad_normed = in.Scratch("grad_normed"),
                       .norm_work = in.Work("norm_work"),
                       .products = in.Work("products")};
    return [this, t]() mutable { BackwardInput(t); };
  }

  BoundPass BindBackwardWeight(BoundTensors& in) const override {
    MlpBackwardWeight t{.grad_hidden = in.Gradient("hidden"),
                        .normed = in.Value("normed"),
                        .activated = in.Value("activated"),
                        .grad_gate_up = in.Value("grad_gate_up"),
                        .norm_sums = in.Value("grad_norm"),
                        .grad_norm = in.ParameterGradient("norm"),
                        .grad_weight_gate_up = in.ParameterGradient("gate_up"),
                        .grad_weight_down = in.ParameterGradient("down"),
                        .add = in.AddsToParameterGradient("norm"),
                        .products = in.Work("products")};
    return [this, t]() mutable { BackwardWeight(t); };
  }

  void Forward(MlpForward& t) const {
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    ops_.Linear(t.normed, t.weight_gate_up, /*residual=*/at::Tensor(), t.gate_up, t.products);
    if (!t.hidden.defined()) {
      return;  // recomputed for the backward, which does not read it
    }
    ops_.SwiGlu(t.gate_up, t.activated);
    ops_.Linear(t.activated, t.weight_down, /*residual=*/t.x, t.hidden, t.products);
  }

  void BackwardInput(MlpBackwardInput& t) const {
    // `activated` is first the activation's gradient, then the activation itself.
    ops_.LinearBackwardInput(t.grad_hidden, t.weight_down, /*add=*/false, t.activated, t.products);
    ops_.SwiGluBackward(t.gate_up, t.activated, t.grad_gate_up, t.activated);
    ops_.LinearBackwardInput(t.grad_gate_up, t.weight_gate_up, /*add=*/false, t.grad_normed, t.products);
    ops_.RmsNormBackward(t.grad_normed, t.x, t.norm, epsilon_, /*residual=*/t.grad_hidden, t.add_x, t.grad_x,
                         /*add_weight=*/false, t.grad_norm, t.norm_work);
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
  }

  void BackwardWeight(MlpBackwardWeight& t) const {
    ops_.LinearBackwardWeight(t.grad_hidden, t.activated, t.add, t.grad_weight_down, t.products);
    ops_.LinearBackwardWeight(t.grad_gate_up, t.normed, t.add, t.grad_weight_gate_up, t.products);
    CopyOrAdd(t.norm_sums, t.add, t.grad_norm);
  }
};

}  // namespace

std::unique_ptr<Node> MakeMlpNode(const NodeContext& context) { return std::make_unique<MlpNode>(context); }

}  // namespace tandem::model
