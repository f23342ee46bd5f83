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
  explicit MlpNode(const NodeContext& context)
      : SplitNode(context), squares_(context.node.kind == &kMlpSquaredRelu) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array hidden = in.Value("hidden");
    const ops::Array kept = in.Value(kept_);
    const ops::Array norm = in.Parameter("norm");
    const ops::Array weight_down = in.Parameter("down");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array activated = in.Scratch("activated");
    const ops::Array projected = s_.norms_after ? in.Scratch("projected") : ops::Array();
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    if (!s_.norms_after) {
      calls.Add(ops_.RmsNorm(x, norm, norms_, normed));
    }
    calls.Add(ops_.Linear(s_.norms_after ? x : normed, in.Parameter(up_), /*residual=*/{}, kept, products));
    if (!hidden.defined()) {
      return calls;  // recomputed for the backward, which does not read it
    }
    calls.Add(squares_ ? ops_.SquaredRelu(kept, activated) : ops_.SwiGlu(kept, activated));
    if (s_.norms_after) {
      calls.Add(ops_.Linear(activated, weight_down, /*residual=*/{}, projected, products));
      AddNormed(projected, x, norm, normed, hidden, calls);
    } else {
      calls.Add(
          ops_.Linear(activated, weight_down, /*residual=*/x, hidden, products, s_.residual_multiplier));
    }
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array kept = in.Value(kept_);
    const ops::Array weight_down = in.Parameter("down");
    const ops::Array activated = in.Value("activated");
    const ops::Array grad_kept = in.Value(grad_kept_);
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    ops::Array grad_projected = grad_hidden;
    if (s_.norms_after) {
      const ops::Array projected = in.Scratch("projected");
      grad_projected = in.Value("grad_projected");
      calls.Add(ops_.SwiGlu(kept, activated));
      calls.Add(ops_.Linear(activated, weight_down, /*residual=*/{}, projected, products));
      AddNormedBackward(grad_hidden, projected, grad_projected, in, calls);
    }
    // `activated` is now first the activation's gradient, then the activation itself.
    calls.Add(ops_.LinearBackwardInput(grad_projected, weight_down, /*add=*/false, activated, products,
                                       s_.residual_multiplier));
    calls.Add(squares_ ? ops_.SquaredReluBackward(kept, activated, grad_kept, activated)
                       : ops_.SwiGluBackward(kept, activated, grad_kept, activated));
    calls.Add(ops_.LinearBackwardInput(grad_kept, in.Parameter(up_), /*add=*/false, grad_normed, products));
    if (s_.norms_after) {
      AddResidualBackward(grad_normed, grad_hidden, in, calls);
    } else {
      AddNormBackward(grad_normed, in, calls);
    }
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    ops::Calls calls;
    AddMatrixGradient("down", s_.norms_after ? in.Value("grad_projected") : in.Gradient("hidden"),
                      in.Value("activated"), in, calls, s_.residual_multiplier);
    AddMatrixGradient(up_, in.Value(grad_kept_), in.Value(s_.norms_after ? "x" : "normed"), in, calls);
    AddVectorGradients(in, calls);
    return calls;
  }

  const bool squares_;
  const std::string kept_ = squares_ ? "raised" : "gate_up";
  const std::string grad_kept_ = "grad_" + kept_;
  const std::string up_ = squares_ ? "up" : "gate_up";
};

}  // namespace

std::unique_ptr<Node> MakeMlpNode(const NodeContext& context) { return std::make_unique<MlpNode>(context); }

}  // namespace tandem::model
