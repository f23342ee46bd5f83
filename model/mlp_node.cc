// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of mlp.cc.
class MlpNode final : public SplitNode {
 public:
  explicit MlpNode(const NodeContext& context) : SplitNode(context, kMlp.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array hidden = in.Value("hidden");
    const ops::Array gate_up = in.Value("gate_up");
    const ops::Array weight_down = in.Parameter("down");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array activated = in.Scratch("activated");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.RmsNorm(x, in.Parameter("norm"), epsilon_, normed));
    calls.Add(ops_.Linear(normed, in.Parameter("gate_up"), /*residual=*/{}, gate_up, products));
    if (!hidden.defined()) {
      return calls;  // recomputed for the backward, which does not read it
    }
    calls.Add(ops_.SwiGlu(gate_up, activated));
    calls.Add(ops_.Linear(activated, weight_down, /*residual=*/x, hidden, products));
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array activated = in.Value("activated");
    const ops::Array grad_gate_up = in.Value("grad_gate_up");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    // `activated` is first the activation's gradient, then the activation itself.
    calls.Add(
        ops_.LinearBackwardInput(grad_hidden, in.Parameter("down"), /*add=*/false, activated, products));
    calls.Add(ops_.SwiGluBackward(in.Value("gate_up"), activated, grad_gate_up, activated));
    calls.Add(ops_.LinearBackwardInput(grad_gate_up, in.Parameter("gate_up"), /*add=*/false, grad_normed,
                                       products));
    AddNormBackward(grad_normed, in, calls);
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    const bool add = in.AddsToParameterGradient("norm");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.LinearBackwardWeight(in.Gradient("hidden"), in.Value("activated"), add,
                                        in.ParameterGradient("down"), products));
    calls.Add(ops_.LinearBackwardWeight(in.Value("grad_gate_up"), in.Value("normed"), add,
                                        in.ParameterGradient("gate_up"), products));
    calls.Add(CopyOrAdd(in.Value("grad_norm"), add, in.ParameterGradient("norm")));
    return calls;
  }
};

}  // namespace

std::unique_ptr<Node> MakeMlpNode(const NodeContext& context) { return std::make_unique<MlpNode>(context); }

}  // namespace tandem::model
