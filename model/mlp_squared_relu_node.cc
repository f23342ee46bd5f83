// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of mlp_squared_relu.cc.
class MlpSquaredReluNode final : public SplitNode {
 public:
  explicit MlpSquaredReluNode(const NodeContext& context)
      : SplitNode(context, kMlpSquaredRelu.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array hidden = in.Value("hidden");
    const ops::Array raised = in.Value("raised");
    const ops::Array weight_down = in.Parameter("down");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array activated = in.Scratch("activated");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.RmsNorm(x, in.Parameter("norm"), epsilon_, normed));
    calls.Add(ops_.Linear(normed, in.Parameter("up"), /*residual=*/{}, raised, products));
    if (!hidden.defined()) {
      return calls;  // recomputed for the backward, which does not read it
    }
    calls.Add(ops_.SquaredRelu(raised, activated));
    calls.Add(ops_.Linear(activated, weight_down, /*residual=*/x, hidden, products));
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array activated = in.Value("activated");
    const ops::Array grad_raised = in.Value("grad_raised");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    // `activated` is first the activation's gradient, then the activation itself.
    calls.Add(ops_.LinearBackwardInput(in.Gradient("hidden"), in.Parameter("down"), /*add=*/false, activated,
                                       products));
    calls.Add(ops_.SquaredReluBackward(in.Value("raised"), activated, grad_raised, activated));
    calls.Add(
        ops_.LinearBackwardInput(grad_raised, in.Parameter("up"), /*add=*/false, grad_normed, products));
    AddNormBackward(grad_normed, in, calls);
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    const bool add = in.AddsToParameterGradient("norm");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.LinearBackwardWeight(in.Gradient("hidden"), in.Value("activated"), add,
                                        in.ParameterGradient("down"), products));
    calls.Add(ops_.LinearBackwardWeight(in.Value("grad_raised"), in.Value("normed"), add,
                                        in.ParameterGradient("up"), products));
    calls.Add(CopyOrAdd(in.Value("grad_norm"), add, in.ParameterGradient("norm")));
    return calls;
  }
};

}  // namespace

std::unique_ptr<Node> MakeMlpSquaredReluNode(const NodeContext& context) {
  return std::make_unique<MlpSquaredReluNode>(context);
}

}  // namespace tandem::model
