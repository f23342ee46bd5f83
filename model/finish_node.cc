// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

class FinishNode final : public DeclaredNode {
 public:
  explicit FinishNode(const NodeContext& context) : DeclaredNode(context, DeclareFinish(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [this, x = in.Value("x"), made = in.Value("made"), hidden = in.Value("hidden")]() mutable {
      if (hidden.defined()) {  // otherwise it was kept
        hidden.copy_(made);
        ops_.ResidualAdd(x, hidden);
      }
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [this, grad_hidden = in.Gradient("hidden"), grad_x = in.Gradient("x"),
            add_x = in.AddsToGradient("x"), grad_made = in.OverwrittenGradient("made")]() mutable {
      grad_made.copy_(grad_hidden);
      if (add_x) {
        ops_.ResidualAdd(grad_hidden, grad_x);
      } else {
        grad_x.copy_(grad_hidden);
      }
    };
  }
};

}  // namespace

std::unique_ptr<Node> MakeFinishNode(const NodeContext& context) {
  return std::make_unique<FinishNode>(context);
}

}  // namespace tandem::model
