// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Arrays have the names of mlp.cc.
class MlpNode final : public SplitNode {
 public:
  MlpNode(const NodeContext& context, const NodeKind& kind)
      : SplitNode(context, kind.declare(context.shapes)), squares_(&kind == &kMlpSquaredRelu) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array hidden = in.Value("hidden");
    const ops::Array kept = in.Value(kept_);
    const ops::Array weight_down = in.Parameter("down");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array activated = in.Scratch("activated");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.RmsNorm(x, in.Parameter("norm"), norms_, normed));
    calls.Add(ops_.Linear(normed, in.Parameter(up_), /*residual=*/{}, kept, products));
    if (!hidden.defined()) {
      return calls;  // recomputed for the backward, which does not read it
    }
    calls.Add(squares_ ? ops_.SquaredRelu(kept, activated) : ops_.SwiGlu(kept, activated));
    calls.Add(ops_.Linear(activated, weight_down, /*residual=*/x, hidden, products, s_.residual_multiplier));
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array kept = in.Value(kept_);
    const ops::Array activated = in.Value("activated");
    const ops::Array grad_kept = in.Value(grad_kept_);
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    // `activated` is first the activation's gradient, then the activation itself.
    calls.Add(ops_.LinearBackwardInput(grad_hidden, in.Parameter("down"), /*add=*/false, activated, products,
                                       s_.residual_multiplier));
    calls.Add(squares_ ? ops_.SquaredReluBackward(kept, activated, grad_kept, activated)
                       : ops_.SwiGluBackward(kept, activated, grad_kept, activated));
    calls.Add(ops_.LinearBackwardInput(grad_kept, in.Parameter(up_), /*add=*/false, grad_normed, products));
    AddNormBackward(grad_normed, in, calls);
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    const bool add = in.AddsToParameterGradient("norm");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.LinearBackwardWeight(in.Gradient("hidden"), in.Value("activated"), add,
                                        in.ParameterGradient("down"), products, s_.residual_multiplier));
    calls.Add(ops_.LinearBackwardWeight(in.Value(grad_kept_), in.Value("normed"), add,
                                        in.ParameterGradient(up_), products));
    calls.Add(CopyOrAdd(in.Value("grad_norm"), add, in.ParameterGradient("norm")));
    return calls;
  }

  const bool squares_;
  const std::string kept_ = squares_ ? "raised" : "gate_up";
  const std::string grad_kept_ = "grad_" + kept_;
  const std::string up_ = squares_ ? "up" : "gate_up";
};

}  // namespace

std::unique_ptr<Node> MakeMlpNode(const NodeContext& context) {
  return std::make_unique<MlpNode>(context, kMlp);
}

std::unique_ptr<Node> MakeMlpSquaredReluNode(const NodeContext& context) {
  return std::make_unique<MlpNode>(context, kMlpSquaredRelu);
}

}  // namespace tandem::model
