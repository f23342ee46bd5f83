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

// By the names of experts.cc. What some pass does not have is undefined.
struct Sorted {
  at::Tensor normed, chosen;
  at::Tensor row_of, counts, window, rows;
  ops::Workspace products;
};

struct ExpertsForward {
  Sorted sorted;
  at::Tensor probabilities, made, gate_up;
  at::Tensor weight_gate_up, weight_down;
  at::Tensor row_probabilities, activated, made_rows;
  at::Tensor later_gate_up;
};

// Gradients of the activation and of what is before it, of the rows of one pass.
struct Inner {
  at::Tensor gate_up, activated, grad_gate_up;
};

// What these are computed from.
struct InnerBackward {
  at::Tensor probabilities, grad_made;
  at::Tensor weight_gate_up, weight_down;
  at::Tensor row_probabilities, grad_row_probabilities, grad_rows;
  Inner first, later;
};

struct ExpertsBackwardInput {
  Sorted sorted;
  InnerBackward inner;
  at::Tensor grad_normed, grad_probabilities;
  bool add_normed = false;
  bool add_probabilities = false;
};

struct ExpertsBackwardWeight {
  Sorted sorted;
  InnerBackward inner;
  at::Tensor grad_weight_gate_up, grad_weight_down;
  bool add = false;  // to the parameters' gradients
};

// A number for each slot of a token.
at::Tensor Column(const at::Tensor& probabilities) { return probabilities.view({-1, 1}); }

class ExpertsNode final : public SplitNode {
 public:
  explicit ExpertsNode(const NodeContext& context) : SplitNode(context, DeclareExperts(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    ExpertsForward t{.sorted = BindSorted(in),
                     .probabilities = Column(in.Value("probabilities")),
                     .made = in.Value("made"),
                     .gate_up = in.Value("gate_up"),
                     .weight_gate_up = in.Parameter("gate_up"),
                     .weight_down = in.Parameter("down"),
                     .row_probabilities = in.Scratch("row_probabilities"),
                     .activated = in.Scratch("activated"),
                     .made_rows = in.Scratch("made_rows")};
    if (exceeds()) {
      t.later_gate_up = in.Scratch("later_gate_up");
    }
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackwardInput(BoundTensors& in) const override {
    ExpertsBackwardInput t{
        .sorted = BindSorted(in),
        .inner = {.probabilities = Column(in.Value("probabilities")),
                  .grad_made = in.Gradient("made"),
                  .weight_gate_up = in.Parameter("gate_up"),
                  .weight_down = in.Parameter("down"),
                  .row_probabilities = in.Scratch("row_probabilities"),
                  .grad_row_probabilities = in.Scratch("grad_row_probabilities"),
                  .grad_rows = in.Scratch("grad_rows"),
                  .first = {in.Value("gate_up"), in.Value("activated"), in.Value("grad_gate_up")},
                  .later = Later(in)},
        .grad_normed = in.Gradient("normed"),
        .grad_probabilities = Column(in.Gradient("probabilities")),
        .add_normed = in.AddsToGradient("normed"),
        .add_probabilities = in.AddsToGradient("probabilities")};
    return [this, t]() mutable { BackwardInput(t); };
  }

  BoundPass BindBackwardWeight(BoundTensors& in) const override {
    ExpertsBackwardWeight t{
        .sorted = BindSorted(in),
        .inner = {.grad_made = in.Gradient("made"),
                  .grad_rows = in.Scratch("grad_rows"),
                  .first = {.activated = in.Value("activated"), .grad_gate_up = in.Value("grad_gate_up")},
                  .later = Later(in)},
        .grad_weight_gate_up = in.ParameterGradient("gate_up"),
        .grad_weight_down = in.ParameterGradient("down"),
        .add = in.AddsToParameterGradient("gate_up")};
    if (exceeds()) {
      t.inner.probabilities = Column(in.Value("probabilities"));
      t.inner.weight_gate_up = in.Parameter("gate_up");
      t.inner.weight_down = in.Parameter("down");
      t.inner.row_probabilities = in.Scratch("row_probabilities");
      t.inner.grad_row_probabilities = in.Scratch("grad_row_probabilities");
    }
    return [this, t]() mutable { BackwardWeight(t); };
  }

  static Sorted BindSorted(BoundTensors& in) {
    return {.normed = in.Value("normed"),
            .chosen = in.Value("chosen"),
            .row_of = in.Scratch("row_of"),
            .counts = in.Scratch("counts"),
            .window = in.Scratch("window"),
            .rows = in.Scratch("rows"),
            .products = in.Work("products")};
  }

  Inner Later(BoundTensors& in) const {
    return exceeds() ? Inner{in.Scratch("later_gate_up"), in.Scratch("later_activated"),
                             in.Scratch("later_grad_gate_up")}
                     : Inner{};
  }

  bool exceeds() const { return s_.expert_passes > 1; }

  // Calls visit(first row, rows) for each pass that has rows, and for the first in any case.
  template <typename Visit>
  void ForEachPass(Sorted& t, const Visit& visit) const {
    ops::PlanRows(t.chosen, t.counts, t.row_of);
    for (int64_t pass = 0; pass < s_.expert_passes; ++pass) {
      const int64_t first = pass * s_.rows;
      const int64_t rows = ops::RowsInWindow(t.counts, first, s_.rows, t.window);
      if (pass > 0 && rows == 0) {
        return;
      }
      visit(first, rows);
    }
  }

  // `rows` of tokens: those of this pass.
  static at::Tensor Take(const at::Tensor& tokens, const Sorted& t, int64_t first, int64_t rows,
                         const at::Tensor& memory) {
    at::Tensor taken = memory.narrow(0, 0, rows);
    ops::Permute(tokens, t.row_of, first, taken);
    return taken;
  }

  void GateUp(const Sorted& t, const at::Tensor& weight, int64_t first, int64_t rows,
              const at::Tensor& memory) const {
    at::Tensor gate_up = memory.narrow(0, 0, rows);
    ops::GroupedLinear(ops_, t.window, Take(t.normed, t, first, rows, t.rows), weight, gate_up, t.products);
  }

  void Forward(ExpertsForward& t) const {
    ForEachPass(t.sorted, [&](int64_t first, int64_t rows) {
      const at::Tensor& memory = first == 0 ? t.gate_up : t.later_gate_up;
      if (first == 0 || t.made.defined()) {
        GateUp(t.sorted, t.weight_gate_up, first, rows, memory);
      }
      if (!t.made.defined()) {
        return;  // recomputed for the backward, which does not read it
      }
      const at::Tensor probabilities = Take(t.probabilities, t.sorted, first, rows, t.row_probabilities);
      at::Tensor activated = t.activated.narrow(0, 0, rows);
      ops::WeightedSwiGlu(memory.narrow(0, 0, rows), probabilities, activated);
      at::Tensor made = t.made_rows.narrow(0, 0, rows);
      ops::GroupedLinear(ops_, t.sorted.window, activated, t.weight_down, made, t.sorted.products);
      ops::Unpermute(made, t.sorted.row_of, first, /*add=*/first > 0, t.made);
    });
  }

  // Returns the gradients of what was made of the rows. `activated` is first the activation's gradient, then
  // the activation itself.
  at::Tensor InnerGradients(const Sorted& t, const InnerBackward& b, const Inner& inner, int64_t first,
                            int64_t rows) const {
    const at::Tensor probabilities = Take(b.probabilities, t, first, rows, b.row_probabilities);
    at::Tensor grad_made = Take(b.grad_made, t, first, rows, b.grad_rows);
    at::Tensor activated = inner.activated.narrow(0, 0, rows);
    at::Tensor grad_gate_up = inner.grad_gate_up.narrow(0, 0, rows);
    at::Tensor grad_probabilities = b.grad_row_probabilities.narrow(0, 0, rows);
    ops::GroupedLinearBackwardInput(ops_, t.window, grad_made, b.weight_down, activated, t.products);
    ops::WeightedSwiGluBackward(inner.gate_up.narrow(0, 0, rows), probabilities, activated, grad_gate_up,
                                activated, grad_probabilities);
    return grad_made;
  }

  void BackwardInput(ExpertsBackwardInput& t) const {
    ForEachPass(t.sorted, [&](int64_t first, int64_t rows) {
      const Inner& inner = first == 0 ? t.inner.first : t.inner.later;
      if (first > 0) {
        GateUp(t.sorted, t.inner.weight_gate_up, first, rows, inner.gate_up);
      }
      at::Tensor grad_rows = InnerGradients(t.sorted, t.inner, inner, first, rows);
      // From here on they are the rows' own gradients.
      ops::GroupedLinearBackwardInput(ops_, t.sorted.window, inner.grad_gate_up.narrow(0, 0, rows),
                                      t.inner.weight_gate_up, grad_rows, t.sorted.products);
      ops::Unpermute(grad_rows, t.sorted.row_of, first, t.add_normed || first > 0, t.grad_normed);
      ops::Unpermute(t.inner.grad_row_probabilities.narrow(0, 0, rows), t.sorted.row_of, first,
                     t.add_probabilities || first > 0, t.grad_probabilities);
    });
  }

  void BackwardWeight(ExpertsBackwardWeight& t) const {
    ForEachPass(t.sorted, [&](int64_t first, int64_t rows) {
      const Inner& inner = first == 0 ? t.inner.first : t.inner.later;
      if (first > 0) {
        GateUp(t.sorted, t.inner.weight_gate_up, first, rows, inner.gate_up);
      }
      const at::Tensor grad_made = first > 0
                                       ? InnerGradients(t.sorted, t.inner, inner, first, rows)
                                       : Take(t.inner.grad_made, t.sorted, first, rows, t.inner.grad_rows);
      const bool add = t.add || first > 0;
      ops::GroupedLinearBackwardWeight(ops_, t.sorted.window, grad_made, inner.activated.narrow(0, 0, rows),
                                       add, t.grad_weight_down, t.sorted.products);
      ops::GroupedLinearBackwardWeight(ops_, t.sorted.window, inner.grad_gate_up.narrow(0, 0, rows),
                                       Take(t.sorted.normed, t.sorted, first, rows, t.sorted.rows), add,
                                       t.grad_weight_gate_up, t.sorted.products);
    });
  }
};

}  // namespace

std::unique_ptr<Node> MakeExpertsNode(const NodeContext& context) {
  return std::make_unique<ExpertsNode>(context);
}

}  // namespace tandem::model
