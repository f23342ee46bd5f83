// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/sparse_operations.h"

namespace tandem::model {
namespace {

// By the names of experts.cc. What some pass does not have is undefined.
struct Sorted {
  at::Tensor normed, chosen;
  at::Tensor row_of, counts, begins, rows;
  ops::Workspace products, sort_work;
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

// A number for each slot of a token.
at::Tensor Column(const at::Tensor& probabilities) { return probabilities.view({-1, 1}); }

class ExpertsNode final : public SplitNode {
 public:
  explicit ExpertsNode(const NodeContext& context) : SplitNode(context, kExperts.declare(context.shapes)) {
    if (s_.padded_rows > 0) {
      padded_begins_ = at::arange(0, (s_.local_experts + 1) * s_.padded_rows, s_.padded_rows,
                                  at::TensorOptions(at::kLong));
    }
  }

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [this, sorted = BindSorted(in), probabilities = Column(in.Value("probabilities")),
            made = in.Value("made"), first_gate_up = in.Value("gate_up"),
            weight_gate_up = in.Parameter("gate_up"), weight_down = in.Parameter("down"),
            row_probabilities = in.Scratch("row_probabilities"), activated = in.Scratch("activated"),
            made_rows = in.Scratch("made_rows"),
            later_gate_up = exceeds() ? in.Scratch("later_gate_up") : at::Tensor()]() mutable {
      ForEachPass(sorted, [&](int64_t first) {
        at::Tensor& gate_up = first == 0 ? first_gate_up : later_gate_up;
        if (first == 0 || made.defined()) {
          GateUp(sorted, weight_gate_up, first, gate_up);
        }
        if (!made.defined()) {
          return;  // recomputed for the backward, which does not read it
        }
        Permute(probabilities, sorted, first, row_probabilities);
        sparse().WeightedSwiGlu(sorted.begins, gate_up, row_probabilities, activated);
        sparse().GroupedLinear(ProductBegins(sorted), activated, weight_down, made_rows, sorted.products);
        Unpermute(made_rows, sorted, first, /*add=*/first > 0, made);
      });
    };
  }

  BoundPass BindBackwardInput(BoundTensors& in) const override {
    InnerBackward b = BindInner(in, /*computes=*/true);
    b.first = {in.Value("gate_up"), in.Value("activated"), in.Value("grad_gate_up")};
    return
        [this, b, sorted = BindSorted(in), grad_normed = in.Gradient("normed"),
         grad_probabilities = Column(in.Gradient("probabilities")), add_normed = in.AddsToGradient("normed"),
         add_probabilities = in.AddsToGradient("probabilities")]() mutable {
          ForEachPass(sorted, [&](int64_t first) {
            Inner& inner = first == 0 ? b.first : b.later;
            if (first > 0) {
              GateUp(sorted, b.weight_gate_up, first, inner.gate_up);
            }
            InnerGradients(sorted, b, inner, first);
            // From here on grad_rows are the rows' own gradients.
            sparse().GroupedLinearBackwardInput(ProductBegins(sorted), inner.grad_gate_up, b.weight_gate_up,
                                                b.grad_rows, sorted.products);
            Unpermute(b.grad_rows, sorted, first, add_normed || first > 0, grad_normed);
            Unpermute(b.grad_row_probabilities, sorted, first, add_probabilities || first > 0,
                      grad_probabilities);
          });
        };
  }

  BoundPass BindBackwardWeight(BoundTensors& in) const override {
    // The first pass left its gradients; those of later ones are computed again.
    InnerBackward b = BindInner(in, /*computes=*/exceeds());
    b.first = {.activated = in.Value("activated"), .grad_gate_up = in.Value("grad_gate_up")};
    return [this, b, sorted = BindSorted(in), grad_weight_gate_up = in.ParameterGradient("gate_up"),
            grad_weight_down = in.ParameterGradient("down"),
            adds = in.AddsToParameterGradient("gate_up")]() mutable {
      ForEachPass(sorted, [&](int64_t first) {
        Inner& inner = first == 0 ? b.first : b.later;
        if (first > 0) {
          GateUp(sorted, b.weight_gate_up, first, inner.gate_up);
          InnerGradients(sorted, b, inner, first);
        } else {
          Permute(b.grad_made, sorted, first, b.grad_rows);
          Permute(sorted.normed, sorted, first, sorted.rows);
        }
        const bool add = adds || first > 0;
        sparse().GroupedLinearBackwardWeight(ProductBegins(sorted), b.grad_rows, inner.activated, add,
                                             grad_weight_down, sorted.products);
        sparse().GroupedLinearBackwardWeight(ProductBegins(sorted), inner.grad_gate_up, sorted.rows, add,
                                             grad_weight_gate_up, sorted.products);
      });
    };
  }

  static Sorted BindSorted(BoundTensors& in) {
    return {.normed = in.Value("normed"),
            .chosen = in.Value("chosen"),
            .row_of = in.Scratch("row_of"),
            .counts = in.Scratch("counts"),
            .begins = in.Scratch("begins"),
            .rows = in.Scratch("rows"),
            .products = in.Work("products"),
            .sort_work = in.Work("sort_work")};
  }

  // All but `first`. computes: the pass calls InnerGradients.
  InnerBackward BindInner(BoundTensors& in, bool computes) const {
    InnerBackward b{.grad_made = in.Gradient("made"), .grad_rows = in.Scratch("grad_rows")};
    if (computes) {
      b.probabilities = Column(in.Value("probabilities"));
      b.weight_gate_up = in.Parameter("gate_up");
      b.weight_down = in.Parameter("down");
      b.row_probabilities = in.Scratch("row_probabilities");
      b.grad_row_probabilities = in.Scratch("grad_row_probabilities");
    }
    if (exceeds()) {
      b.later = {in.Scratch("later_gate_up"), in.Scratch("later_activated"),
                 in.Scratch("later_grad_gate_up")};
    }
    return b;
  }

  bool exceeds() const { return s_.expert_passes > 1; }

  const ops::SparseOperations& sparse() const { return ops_.sparse(); }

  // Calls visit(first row) for each pass that may have rows, and for the first in any case. What a pass
  // computes of the rows of its memory are those that `begins` says there are.
  template <typename Visit>
  void ForEachPass(Sorted& t, const Visit& visit) const {
    sparse().PlanRows(t.chosen, s_.padded_rows, t.counts, t.row_of, t.sort_work);
    for (int64_t pass = 0; pass < s_.expert_passes; ++pass) {
      const int64_t first = pass * s_.rows;
      if (!sparse().PlanWindow(t.counts, first, s_.rows, t.begins) && pass > 0) {
        return;
      }
      visit(first);
    }
  }

  // Padded rows are known on the host, which lets a GPU use its fastest products.
  const at::Tensor& ProductBegins(const Sorted& t) const {
    return s_.padded_rows > 0 ? padded_begins_ : t.begins;
  }

  // The rows of a pass, of tokens or of their slots.
  void Permute(const at::Tensor& from, const Sorted& t, int64_t first, at::Tensor& rows) const {
    if (s_.padded_rows > 0) {
      rows.zero_();
    }
    sparse().Permute(from, t.row_of, first, rows, &t.begins);
  }

  void Unpermute(const at::Tensor& rows, const Sorted& t, int64_t first, bool add, at::Tensor& to) const {
    sparse().Unpermute(rows, t.row_of, first, add, to, &t.begins);
  }

  void GateUp(Sorted& t, const at::Tensor& weight, int64_t first, at::Tensor& gate_up) const {
    Permute(t.normed, t, first, t.rows);
    sparse().GroupedLinear(ProductBegins(t), t.rows, weight, gate_up, t.products);
  }

  // Leaves the gradients of what was made of the rows in grad_rows. `activated` is first the activation's
  // gradient, then the activation itself.
  void InnerGradients(const Sorted& t, InnerBackward& b, Inner& inner, int64_t first) const {
    Permute(b.probabilities, t, first, b.row_probabilities);
    Permute(b.grad_made, t, first, b.grad_rows);
    sparse().GroupedLinearBackwardInput(ProductBegins(t), b.grad_rows, b.weight_down, inner.activated,
                                        t.products);
    sparse().WeightedSwiGluBackward(t.begins, inner.gate_up, b.row_probabilities, inner.activated,
                                    inner.grad_gate_up, inner.activated, b.grad_row_probabilities);
  }

  at::Tensor padded_begins_;  // int64 [E + 1] on the host; undefined: rows are not padded
};

}  // namespace

std::unique_ptr<Node> MakeExpertsNode(const NodeContext& context) {
  return std::make_unique<ExpertsNode>(context);
}

}  // namespace tandem::model
