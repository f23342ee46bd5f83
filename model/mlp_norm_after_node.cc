// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of mlp_norm_after.cc.
class MlpNormAfterNode final : public SplitNode {
 public:
  explicit MlpNormAfterNode(const NodeContext& context)
      : SplitNode(context, kMlpNormAfter.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array hidden = in.Value("hidden");
    const ops::Array gate_up = in.Value("gate_up");
    const ops::Array norm = in.Parameter("norm");
    const ops::Array weight_down = in.Parameter("down");
    const ops::Array activated = in.Scratch("activated");
    const ops::Array projected = in.Scratch("projected");
    const ops::Array normed = in.Scratch("normed");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.Linear(x, in.Parameter("gate_up"), /*residual=*/{}, gate_up, products));
    if (!hidden.defined()) {
      return calls;  // recomputed for the backward, which does not read it
    }
    calls.Add(ops_.SwiGlu(gate_up, activated));
    calls.Add(ops_.Linear(activated, weight_down, /*residual=*/{}, projected, products));
    AddNormed(projected, x, norm, normed, hidden, calls);
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array gate_up = in.Value("gate_up");
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array weight_down = in.Parameter("down");
    const ops::Array activated = in.Value("activated");
    const ops::Array grad_gate_up = in.Value("grad_gate_up");
    const ops::Array grad_projected = in.Value("grad_projected");
    const ops::Array projected = in.Scratch("projected");
    const ops::Array grad_share = in.Scratch("grad_share");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.SwiGlu(gate_up, activated));
    calls.Add(ops_.Linear(activated, weight_down, /*residual=*/{}, projected, products));
    AddNormedBackward(grad_hidden, projected, grad_projected, in, calls);
    // `activated` is now first the activation's gradient, then the activation itself.
    calls.Add(ops_.LinearBackwardInput(grad_projected, weight_down, /*add=*/false, activated, products));
    calls.Add(ops_.SwiGluBackward(gate_up, activated, grad_gate_up, activated));
    calls.Add(
        ops_.LinearBackwardInput(grad_gate_up, in.Parameter("gate_up"), /*add=*/false, grad_share, products));
    AddResidualBackward(grad_share, grad_hidden, in, calls);
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    const bool add = in.AddsToParameterGradient("norm");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.LinearBackwardWeight(in.Value("grad_projected"), in.Value("activated"), add,
                                        in.ParameterGradient("down"), products));
    calls.Add(ops_.LinearBackwardWeight(in.Value("grad_gate_up"), in.Value("x"), add,
                                        in.ParameterGradient("gate_up"), products));
    calls.Add(CopyOrAdd(in.Value("grad_norm"), add, in.ParameterGradient("norm")));
    return calls;
  }
};

}  // namespace

std::unique_ptr<Node> MakeMlpNormAfterNode(const NodeContext& context) {
  return std::make_unique<MlpNormAfterNode>(context);
}

}  // namespace tandem::model
