// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <utility>
#include <vector>

#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/operations.h"

namespace tandem::model {
namespace {

// Arrays have the names of experts.cc; arrays that a pass does not have are undefined.
struct Sorted {
  ops::Array normed, chosen;
  ops::Array row_of, counts, begins, rows;
  ops::Workspace products, sort_work;
};

// The gradients of the activation and of its input, for the rows of one pass.
struct Inner {
  ops::Array gate_up, activated, grad_gate_up;
};

// The arrays from which the gradients are computed.
struct InnerBackward {
  ops::Array probabilities, grad_made;
  ops::Array weight_gate_up, weight_down;
  ops::Array row_probabilities, grad_row_probabilities, grad_rows;
  Inner first, later;
};

// Returns a number for each slot of a token.
ops::Array Column(const ops::Array& probabilities) {
  return probabilities.Reshaped(probabilities.elements(), 1);
}

class ExpertsNode final : public SplitNode {
 public:
  explicit ExpertsNode(const NodeContext& context) : SplitNode(context) {
    for (int64_t expert = 0; expert <= s_.local_experts && s_.padded_rows > 0; ++expert) {
      padded_begins_.push_back(expert * s_.padded_rows);
    }
  }

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const Sorted sorted = BindSorted(in);
    const ops::Array probabilities = Column(in.Value("probabilities"));
    const ops::Array made = in.Value("made");
    const ops::Array first_gate_up = in.Value("gate_up");
    const ops::Array weight_gate_up = in.Parameter("gate_up");
    const ops::Array weight_down = in.Parameter("down");
    const ops::Array row_probabilities = in.Scratch("row_probabilities");
    const ops::Array activated = in.Scratch("activated");
    const ops::Array made_rows = in.Scratch("made_rows");
    const ops::Array later_gate_up = exceeds() ? in.Scratch("later_gate_up") : ops::Array();
    return ForEachPass(sorted, [&](int64_t first, ops::Calls& calls) {
      const ops::Array& gate_up = first == 0 ? first_gate_up : later_gate_up;
      if (first == 0 || made.defined()) {
        GateUp(sorted, weight_gate_up, first, gate_up, calls);
      }
      if (!made.defined()) {
        return;  // recomputed for the backward, which does not read it
      }
      Permute(probabilities, sorted, first, row_probabilities, calls);
      calls.Add(ops_.SwiGlu(gate_up, activated, row_probabilities, sorted.begins));
      calls.Add(
          ops_.GroupedLinear(ProductBegins(sorted), activated, weight_down, made_rows, sorted.products));
      calls.Add(Unpermute(made_rows, sorted, first, /*add=*/first > 0, made));
    });
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    InnerBackward b = BindInner(in, /*computes=*/true);
    b.first = {in.Value("gate_up"), in.Value("activated"), in.Value("grad_gate_up")};
    const Sorted sorted = BindSorted(in);
    const ops::Array grad_normed = in.Gradient("normed");
    const ops::Array grad_probabilities = Column(in.Gradient("probabilities"));
    const bool add_normed = in.AddsToGradient("normed");
    const bool add_probabilities = in.AddsToGradient("probabilities");
    return ForEachPass(sorted, [&](int64_t first, ops::Calls& calls) {
      const Inner& inner = first == 0 ? b.first : b.later;
      if (first > 0) {
        GateUp(sorted, b.weight_gate_up, first, inner.gate_up, calls);
      }
      InnerGradients(sorted, b, inner, first, calls);
      // From here on grad_rows has the gradients of the rows themselves.
      calls.Add(ops_.GroupedLinearBackwardInput(ProductBegins(sorted), inner.grad_gate_up, b.weight_gate_up,
                                                b.grad_rows, sorted.products));
      calls.Add(Unpermute(b.grad_rows, sorted, first, add_normed || first > 0, grad_normed));
      calls.Add(Unpermute(b.grad_row_probabilities, sorted, first, add_probabilities || first > 0,
                          grad_probabilities));
    });
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    // The first pass has left its gradients; those of later passes are computed again.
    InnerBackward b = BindInner(in, /*computes=*/exceeds());
    b.first = {.activated = in.Value("activated"), .grad_gate_up = in.Value("grad_gate_up")};
    const Sorted sorted = BindSorted(in);
    const ops::Array grad_weight_gate_up = in.ParameterGradient("gate_up");
    const ops::Array grad_weight_down = in.ParameterGradient("down");
    const bool adds = in.AddsToParameterGradient("gate_up");
    return ForEachPass(sorted, [&](int64_t first, ops::Calls& calls) {
      const Inner& inner = first == 0 ? b.first : b.later;
      if (first > 0) {
        GateUp(sorted, b.weight_gate_up, first, inner.gate_up, calls);
        InnerGradients(sorted, b, inner, first, calls);
      } else {
        Permute(b.grad_made, sorted, first, b.grad_rows, calls);
        Permute(sorted.normed, sorted, first, sorted.rows, calls);
      }
      const bool add = adds || first > 0;
      calls.Add(ops_.GroupedLinearBackwardWeight(ProductBegins(sorted), b.grad_rows, inner.activated, add,
                                                 grad_weight_down, sorted.products));
      calls.Add(ops_.GroupedLinearBackwardWeight(ProductBegins(sorted), inner.grad_gate_up, sorted.rows, add,
                                                 grad_weight_gate_up, sorted.products));
    });
  }

  static Sorted BindSorted(BoundArrays& in) {
    return {.normed = in.Value("normed"),
            .chosen = in.Value("chosen"),
            .row_of = in.Scratch("row_of"),
            .counts = in.Scratch("counts"),
            .begins = in.Scratch("begins"),
            .rows = in.Scratch("rows"),
            .products = in.Work("products"),
            .sort_work = in.Work("sort_work")};
  }

  // Binds all arrays except `first`. computes: whether the pass calls InnerGradients.
  InnerBackward BindInner(BoundArrays& in, bool computes) const {
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

  // Calls bind(first row, calls) for each pass. The first pass always runs, the others only if they have
  // rows. A pass computes only as many rows of its memory as `begins` says.
  template <typename Bind>
  BoundPass ForEachPass(const Sorted& t, const Bind& bind) const {
    struct Window {
      std::function<bool()> plan;
      ops::Calls calls;
    };
    std::vector<Window> windows;
    for (int64_t pass = 0; pass < s_.expert_passes; ++pass) {
      const int64_t first = pass * s_.rows;
      windows.push_back({.plan = ops_.PlanWindow(t.counts, first, s_.rows, t.begins)});
      bind(first, windows.back().calls);
    }
    return [plan_rows = ops_.PlanRows(t.chosen, s_.padded_rows, t.counts, t.row_of, t.sort_work),
            windows = std::move(windows)] {
      plan_rows();
      for (const Window& window : windows) {
        if (!window.plan() && &window != windows.data()) {
          return;
        }
        window.calls();
      }
    };
  }

  // The host knows the places of padded rows, so a GPU can use its fastest products.
  ops::Array ProductBegins(const Sorted& t) const {
    return padded_begins_.empty()
               ? t.begins
               : ops::Array(padded_begins_.data(), ops::ElementKind::kInt64, DeviceKind::kCpu,
                            static_cast<int64_t>(padded_begins_.size()), 1);
  }

  // Gathers the rows of a pass, of tokens or of their slots.
  void Permute(const ops::Array& from, const Sorted& t, int64_t first, const ops::Array& rows,
               ops::Calls& calls) const {
    if (s_.padded_rows > 0) {
      calls.Add(ops_.Fill(0, rows));
    }
    calls.Add(ops_.Permute(from, t.row_of, first, rows, t.begins));
  }

  ops::Call Unpermute(const ops::Array& rows, const Sorted& t, int64_t first, bool add,
                      const ops::Array& to) const {
    return ops_.Unpermute(rows, t.row_of, first, add, to, t.begins);
  }

  void GateUp(const Sorted& t, const ops::Array& weight, int64_t first, const ops::Array& gate_up,
              ops::Calls& calls) const {
    Permute(t.normed, t, first, t.rows, calls);
    calls.Add(ops_.GroupedLinear(ProductBegins(t), t.rows, weight, gate_up, t.products));
  }

  // Computes the gradients of `made` for each row into grad_rows. `activated` is first the activation's
  // gradient, then the activation itself.
  void InnerGradients(const Sorted& t, const InnerBackward& b, const Inner& inner, int64_t first,
                      ops::Calls& calls) const {
    Permute(b.probabilities, t, first, b.row_probabilities, calls);
    Permute(b.grad_made, t, first, b.grad_rows, calls);
    calls.Add(ops_.GroupedLinearBackwardInput(ProductBegins(t), b.grad_rows, b.weight_down, inner.activated,
                                              t.products));
    calls.Add(ops_.SwiGluBackward(inner.gate_up, inner.activated, inner.grad_gate_up, inner.activated,
                                  b.row_probabilities, b.grad_row_probabilities, t.begins));
  }

  std::vector<int64_t> padded_begins_;  // [E + 1]; empty: rows are not padded
};

}  // namespace

std::unique_ptr<Node> MakeExpertsNode(const NodeContext& context) {
  return std::make_unique<ExpertsNode>(context);
}

}  // namespace tandem::model
