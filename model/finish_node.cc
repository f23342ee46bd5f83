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
    const at::Tensor shared = s_.shared_inner > 0 ? in.Value("shared") : at::Tensor();
    return [shared, x = in.Value("x"), made = in.Value("made"), hidden = in.Value("hidden")]() mutable {
      if (!hidden.defined()) {
        return;  // it was kept
      }
      hidden.copy_(made);
      if (shared.defined()) {
        hidden.add_(shared);
      }
      hidden.add_(x);
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    const at::Tensor grad_shared = s_.shared_inner > 0 ? in.OverwrittenGradient("shared") : at::Tensor();
    return [grad_shared, grad_hidden = in.Gradient("hidden"), grad_x = in.Gradient("x"),
            add_x = in.AddsToGradient("x"), grad_made = in.OverwrittenGradient("made")]() mutable {
      grad_made.copy_(grad_hidden);
      if (grad_shared.defined()) {
        grad_shared.copy_(grad_hidden);
      }
      if (add_x) {
        grad_x.add_(grad_hidden);
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
