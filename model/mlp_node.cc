// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Tensors have the names of mlp.cc.
class MlpNode final : public SplitNode {
 public:
  explicit MlpNode(const NodeContext& context) : SplitNode(context, kMlp.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [this, x = in.Value("x"), hidden = in.Value("hidden"), gate_up = in.Value("gate_up"),
            norm = in.Parameter("norm"), weight_gate_up = in.Parameter("gate_up"),
            weight_down = in.Parameter("down"), normed = in.Scratch("normed"),
            activated = in.Scratch("activated"), products = in.Work("products")]() mutable {
      ops_.RmsNorm(x, norm, epsilon_, normed);
      ops_.Linear(normed, weight_gate_up, /*residual=*/at::Tensor(), gate_up, products);
      if (!hidden.defined()) {
        return;  // recomputed for the backward, which does not read it
      }
      ops_.SwiGlu(gate_up, activated);
      ops_.Linear(activated, weight_down, /*residual=*/x, hidden, products);
    };
  }

  BoundPass BindBackwardInput(BoundTensors& in) const override {
    return [this, x = in.Value("x"), gate_up = in.Value("gate_up"), grad_hidden = in.Gradient("hidden"),
            normed = in.Value("normed"), activated = in.Value("activated"),
            grad_gate_up = in.Value("grad_gate_up"), grad_norm = in.Value("grad_norm"),
            grad_x = in.Gradient("x"), add_x = in.AddsToGradient("x"), norm = in.Parameter("norm"),
            weight_gate_up = in.Parameter("gate_up"), weight_down = in.Parameter("down"),
            grad_normed = in.Scratch("grad_normed"), norm_work = in.Work("norm_work"),
            products = in.Work("products")]() mutable {
      // `activated` is first the activation's gradient, then the activation itself.
      ops_.LinearBackwardInput(grad_hidden, weight_down, /*add=*/false, activated, products);
      ops_.SwiGluBackward(gate_up, activated, grad_gate_up, activated);
      ops_.LinearBackwardInput(grad_gate_up, weight_gate_up, /*add=*/false, grad_normed, products);
      ops_.RmsNormBackward(grad_normed, x, norm, epsilon_, /*residual=*/grad_hidden, add_x, grad_x,
                           /*add_weight=*/false, grad_norm, norm_work);
      ops_.RmsNorm(x, norm, epsilon_, normed);
    };
  }

  BoundPass BindBackwardWeight(BoundTensors& in) const override {
    return [this, grad_hidden = in.Gradient("hidden"), normed = in.Value("normed"),
            activated = in.Value("activated"), grad_gate_up = in.Value("grad_gate_up"),
            norm_sums = in.Value("grad_norm"), grad_norm = in.ParameterGradient("norm"),
            grad_weight_gate_up = in.ParameterGradient("gate_up"),
            grad_weight_down = in.ParameterGradient("down"), add = in.AddsToParameterGradient("norm"),
            products = in.Work("products")]() mutable {
      ops_.LinearBackwardWeight(grad_hidden, activated, add, grad_weight_down, products);
      ops_.LinearBackwardWeight(grad_gate_up, normed, add, grad_weight_gate_up, products);
      CopyOrAdd(norm_sums, add, grad_norm);
    };
  }
};

}  // namespace

std::unique_ptr<Node> MakeMlpNode(const NodeContext& context) { return std::make_unique<MlpNode>(context); }

}  // namespace tandem::model
