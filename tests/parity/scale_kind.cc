// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/scale_kind.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

#include "model/bound_tensors.h"
#include "model/declared_node.h"

namespace tandem::parity {
namespace {

class ScaleNode final : public model::DeclaredNode {
 public:
  explicit ScaleNode(const model::NodeContext& context)
      : DeclaredNode(context, DeclareScale(context.shapes)) {}

 private:
  model::BoundPass BindForward(model::BoundTensors& in) const override {
    return [x = in.Value("x"), hidden = in.Value("hidden"), scale = in.Parameter("scale")]() mutable {
      at::mul_out(hidden, x, scale);
    };
  }

  model::BoundPass BindBackward(model::BoundTensors& in) const override {
    return [x = in.Value("x"), grad_hidden = in.Gradient("hidden"), grad_x = in.OverwrittenGradient("x"),
            scale = in.Parameter("scale"), grad_scale = in.ParameterGradient("scale"),
            add = in.AddsToParameterGradient("scale"), product = in.Scratch("product"),
            sum = in.Scratch("sum")]() mutable {
      at::mul_out(grad_x, grad_hidden, scale);
      at::mul_out(product, grad_hidden, x);
      at::sum_out(sum, product, {0});
      if (add) {
        grad_scale.add_(sum);
      } else {
        grad_scale.copy_(sum);
      }
    };
  }
};

}  // namespace

std::unique_ptr<model::Node> MakeScaleNode(const model::NodeContext& context) {
  return std::make_unique<ScaleNode>(context);
}

}  // namespace tandem::parity
