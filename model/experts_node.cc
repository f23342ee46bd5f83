// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/grouped_linear.h"
#include "ops/permute.h"
#include "ops/swiglu.h"

namespace tandem::model {
namespace {

// By the names of experts.cc.
struct ExpertsForward {
  at::Tensor normed, chosen, probabilities, made, gate_up;
  at::Tensor weight_gate_up, weight_down;
  at::Tensor row_of, counts, rows, row_probabilities, activated, made_rows;
  ops::Workspace products;
};

struct ExpertsBackward {
  at::Tensor normed, chosen, probabilities, gate_up, grad_made;
  at::Tensor grad_normed, grad_probabilities;
  bool add_normed = false;
  bool add_probabilities = false;
  at::Tensor weight_gate_up, weight_down;
  at::Tensor grad_weight_gate_up, grad_weight_down;
  bool add = false;  // to the parameters' gradients
  at::Tensor row_of, counts, rows, row_probabilities, activated;
  at::Tensor grad_rows, grad_gate_up, grad_row_probabilities;
  ops::Workspace products;
};

// A number for each slot of a token.
at::Tensor Column(const at::Tensor& probabilities) { return probabilities.view({-1, 1}); }

class ExpertsNode final : public DeclaredNode {
 public:
  explicit ExpertsNode(const NodeContext& context) : DeclaredNode(context, DeclareExperts(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    ExpertsForward t{.normed = in.Value("normed"),
                     .chosen = in.Value("chosen"),
                     .probabilities = Column(in.Value("probabilities")),
                     .made = in.Value("made"),
                     .gate_up = in.Value("gate_up"),
                     .weight_gate_up = in.Parameter("gate_up"),
                     .weight_down = in.Parameter("down"),
                     .row_of = in.Scratch("row_of"),
                     .counts = in.Scratch("counts"),
                     .rows = in.Scratch("rows"),
                     .row_probabilities = in.Scratch("row_probabilities"),
                     .activated = in.Scratch("activated"),
                     .made_rows = in.Scratch("made_rows"),
                     .products = in.Work("products")};
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    ExpertsBackward t{.normed = in.Value("normed"),
                      .chosen = in.Value("chosen"),
                      .probabilities = Column(in.Value("probabilities")),
                      .gate_up = in.Value("gate_up"),
                      .grad_made = in.Gradient("made"),
                      .grad_normed = in.Gradient("normed"),
                      .grad_probabilities = Column(in.Gradient("probabilities")),
                      .add_normed = in.AddsToGradient("normed"),
                      .add_probabilities = in.AddsToGradient("probabilities"),
                      .weight_gate_up = in.Parameter("gate_up"),
                      .weight_down = in.Parameter("down"),
                      .grad_weight_gate_up = in.ParameterGradient("gate_up"),
                      .grad_weight_down = in.ParameterGradient("down"),
                      .add = in.AddsToParameterGradient("gate_up"),
                      .row_of = in.Scratch("row_of"),
                      .counts = in.Scratch("counts"),
                      .rows = in.Scratch("rows"),
                      .row_probabilities = in.Scratch("row_probabilities"),
                      .activated = in.Scratch("activated"),
                      .grad_rows = in.Scratch("grad_rows"),
                      .grad_gate_up = in.Scratch("grad_gate_up"),
                      .grad_row_probabilities = in.Scratch("grad_row_probabilities"),
                      .products = in.Work("products")};
    return [this, t]() mutable { Backward(t); };
  }

  void Forward(ExpertsForward& t) const {
    ops::PlanRows(t.chosen, t.counts, t.row_of);
    ops::Permute(t.normed, t.row_of, t.rows);
    ops::GroupedLinear(ops_, t.counts, t.rows, t.weight_gate_up, t.gate_up, t.products);
    if (!t.made.defined()) {
      return;  // recomputed for the backward, which does not read it
    }
    ops::Permute(t.probabilities, t.row_of, t.row_probabilities);
    ops::WeightedSwiGlu(t.gate_up, t.row_probabilities, t.activated);
    ops::GroupedLinear(ops_, t.counts, t.activated, t.weight_down, t.made_rows, t.products);
    ops::Unpermute(t.made_rows, t.row_of, /*add=*/false, t.made);
  }

  void Backward(ExpertsBackward& t) const {
    ops::PlanRows(t.chosen, t.counts, t.row_of);
    ops::Permute(t.grad_made, t.row_of, t.grad_rows);
    ops::Permute(t.probabilities, t.row_of, t.row_probabilities);
    // `activated` is first the activation's gradient, then the activation itself.
    ops::GroupedLinearBackwardInput(ops_, t.counts, t.grad_rows, t.weight_down, t.activated, t.products);
    ops::WeightedSwiGluBackward(t.gate_up, t.row_probabilities, t.activated, t.grad_gate_up, t.activated,
                                t.grad_row_probabilities);
    if (t.grad_weight_down.defined()) {
      ops::GroupedLinearBackwardWeight(ops_, t.counts, t.grad_rows, t.activated, t.add, t.grad_weight_down,
                                       t.products);
    }
    if (t.grad_weight_gate_up.defined()) {
      ops::Permute(t.normed, t.row_of, t.rows);
      ops::GroupedLinearBackwardWeight(ops_, t.counts, t.grad_gate_up, t.rows, t.add, t.grad_weight_gate_up,
                                       t.products);
    }
    // From here on they are the rows' own gradients.
    ops::GroupedLinearBackwardInput(ops_, t.counts, t.grad_gate_up, t.weight_gate_up, t.grad_rows,
                                    t.products);
    ops::Unpermute(t.grad_rows, t.row_of, t.add_normed, t.grad_normed);
    ops::Unpermute(t.grad_row_probabilities, t.row_of, t.add_probabilities, t.grad_probabilities);
  }
};

}  // namespace

std::unique_ptr<Node> MakeExpertsNode(const NodeContext& context) {
  return std::make_unique<ExpertsNode>(context);
}

}  // namespace tandem::model
