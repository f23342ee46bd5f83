// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/grouped_linear.h"
#include "ops/swiglu.h"

namespace tandem::model {
namespace {

// By the names of experts.cc.
struct ExpertsForward {
  at::Tensor rows, row_probabilities, counts, made, gate_up;
  at::Tensor weight_gate_up, weight_down;
  at::Tensor activated;
  ops::Workspace products;
};

struct ExpertsBackward {
  at::Tensor rows, row_probabilities, counts, gate_up, grad_made;
  at::Tensor grad_rows, grad_row_probabilities;
  at::Tensor weight_gate_up, weight_down;
  at::Tensor grad_weight_gate_up, grad_weight_down;
  bool add = false;  // to the parameters' gradients
  at::Tensor activated, grad_gate_up;
  ops::Workspace products;
};

class ExpertsNode final : public DeclaredNode {
 public:
  explicit ExpertsNode(const NodeContext& context) : DeclaredNode(context, DeclareExperts(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    ExpertsForward t{.rows = in.Value("rows"),
                     .row_probabilities = in.Value("row_probabilities"),
                     .counts = in.Value("counts"),
                     .made = in.Value("made"),
                     .gate_up = in.Value("gate_up"),
                     .weight_gate_up = in.Parameter("gate_up"),
                     .weight_down = in.Parameter("down"),
                     .activated = in.Scratch("activated"),
                     .products = in.Work("products")};
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    ExpertsBackward t{.rows = in.Value("rows"),
                      .row_probabilities = in.Value("row_probabilities"),
                      .counts = in.Value("counts"),
                      .gate_up = in.Value("gate_up"),
                      .grad_made = in.Gradient("made"),
                      .grad_rows = in.OverwrittenGradient("rows"),
                      .grad_row_probabilities = in.OverwrittenGradient("row_probabilities"),
                      .weight_gate_up = in.Parameter("gate_up"),
                      .weight_down = in.Parameter("down"),
                      .grad_weight_gate_up = in.ParameterGradient("gate_up"),
                      .grad_weight_down = in.ParameterGradient("down"),
                      .add = in.AddsToParameterGradient("gate_up"),
                      .activated = in.Scratch("activated"),
                      .grad_gate_up = in.Scratch("grad_gate_up"),
                      .products = in.Work("products")};
    return [this, t]() mutable { Backward(t); };
  }

  void Forward(ExpertsForward& t) const {
    ops::GroupedLinear(ops_, t.counts, t.rows, t.weight_gate_up, t.gate_up, t.products);
    if (!t.made.defined()) {
      return;  // recomputed for the backward, which does not read it
    }
    ops::WeightedSwiGlu(t.gate_up, t.row_probabilities, t.activated);
    ops::GroupedLinear(ops_, t.counts, t.activated, t.weight_down, t.made, t.products);
  }

  void Backward(ExpertsBackward& t) const {
    // `activated` is first the activation's gradient, then the activation itself.
    ops::GroupedLinearBackwardInput(ops_, t.counts, t.grad_made, t.weight_down, t.activated, t.products);
    ops::WeightedSwiGluBackward(t.gate_up, t.row_probabilities, t.activated, t.grad_gate_up, t.activated,
                                t.grad_row_probabilities);
    if (t.grad_weight_down.defined()) {
      ops::GroupedLinearBackwardWeight(ops_, t.counts, t.grad_made, t.activated, t.add, t.grad_weight_down,
                                       t.products);
    }
    if (t.grad_weight_gate_up.defined()) {
      ops::GroupedLinearBackwardWeight(ops_, t.counts, t.grad_gate_up, t.rows, t.add, t.grad_weight_gate_up,
                                       t.products);
    }
    ops::GroupedLinearBackwardInput(ops_, t.counts, t.grad_gate_up, t.weight_gate_up, t.grad_rows,
                                    t.products);
  }
};

}  // namespace

std::unique_ptr<Node> MakeExpertsNode(const NodeContext& context) {
  return std::make_unique<ExpertsNode>(context);
}

}  // namespace tandem::model
