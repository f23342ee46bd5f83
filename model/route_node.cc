// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "comm/communicator.h"
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/operations.h"
#include "ops/router.h"

namespace tandem::model {
namespace {

// Arrays have the names of route.cc.
class RouteNode final : public DeclaredNode {
 public:
  explicit RouteNode(const NodeContext& context) : DeclaredNode(context) { ops::CheckRouter(s_.router); }

 private:
  // A recompute leaves out what was kept, of the router and of the shared experts from the end.
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array normed = in.Value("normed");
    const ops::Array logits = in.Value("logits");
    const ops::Array chosen = in.Value("chosen");
    const ops::Array probabilities = in.Value("probabilities");
    const ops::Array norm = in.Parameter("norm");
    const ops::Array router = in.Parameter("router");
    const ops::Workspace products = in.Work("products");
    const ops::Workspace router_work = in.Work("router_work");
    const ops::Array ranked = Ranked(in, chosen);
    const ops::Array bias = s_.biased ? in.State("bias") : ops::Array();
    const Wide wide = WideOf(in);
    ops::Calls calls;
    if (normed.defined()) {
      calls.Add(ops_.RmsNorm(x, norm, norms_, normed));
    }
    if (logits.defined()) {
      const ops::Array wide_normed = Widened(normed, wide.rows, calls);
      calls.Add(
          ops_.Linear(wide_normed, Widened(router, wide.router, calls), /*residual=*/{}, logits, products));
    }
    if (chosen.defined()) {
      calls.Add(ops_.Route(s_.router, logits, bias, ranked, probabilities));
      if (s_.capacity.factor > 0) {
        calls.Add(ops_.DropOverflow(s_.capacity.policy, ops::CapacityOf(s_.router, s_.capacity, s_.tokens),
                                    s_.router.experts, ranked, chosen, probabilities, router_work));
      }
    }
    AddReport(in, chosen, logits, calls);
    AddShared(in, normed, calls);
    return calls;
  }

  void AddReport(BoundArrays& in, const ops::Array& chosen, const ops::Array& logits,
                 ops::Calls& calls) const {
    const ops::Array report = in.Value("report");
    const ops::Array counted = s_.biased ? in.State("tokens") : ops::Array();
    const ops::Workspace work = in.Work("router_work");
    if (!report.defined()) {
      return;
    }
    const ops::Array tokens = report.Rows(0, s_.report.experts);
    calls.Add(ops_.CountTokens(chosen, tokens, report.Rows(s_.report.dropped(), 1)));
    if (counted.defined()) {
      calls.Add(ops_.Add(tokens, counted));
    }
    const ops::Array losses = report.Rows(s_.report.balance(), 2);
    calls.Add(s_.balances_globally ? ops_.Fill(0, losses)
                                   : ops_.RouterLosses(s_.router, s_.router_losses, logits,
                                                       /*counts=*/{}, losses, work));
  }

  // The MLP that sees every token; nothing where there is none.
  void AddShared(BoundArrays& in, const ops::Array& normed, ops::Calls& calls) const {
    if (s_.shared_inner == 0) {
      return;
    }
    const ops::Array gate_up = in.Value("shared_gate_up");
    const ops::Array made = in.Value("shared");
    const ops::Array gates = s_.gates_shared ? in.Value("shared_gates") : ops::Array();
    const ops::Array token_gate = s_.gates_shared ? in.Parameter("shared_expert_gate") : ops::Array();
    const ops::Array weight_gate_up = in.Parameter("shared_gate_up");
    const ops::Array weight_down = in.Parameter("shared_down");
    const ops::Array activated = in.Scratch("shared_activated");
    const ops::Workspace products = in.Work("products");
    if (gate_up.defined()) {
      calls.Add(ops_.Linear(normed, weight_gate_up, /*residual=*/{}, gate_up, products));
    }
    if (gates.defined()) {
      calls.Add(ops_.TokenGate(normed, token_gate, gates));
    }
    if (made.defined()) {
      calls.Add(ops_.SwiGlu(gate_up, activated, gates));
      calls.Add(ops_.Linear(activated, weight_down, /*residual=*/{}, made, products, s_.residual_multiplier));
    }
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const ops::Array chosen = in.Value("chosen");
    const ops::Array x = in.Value("x");
    const ops::Array logits = in.Value("logits");
    const ops::Array norm = in.Parameter("norm");
    const ops::Array router = in.Parameter("router");
    const ops::Array normed = in.Scratch("normed");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Array grad_logits = in.Scratch("grad_logits");
    const ops::Workspace products = in.Work("products");
    const ops::Array balance_counts = s_.balances_globally ? in.Value("balance_counts") : ops::Array();
    const ops::Array targets = s_.weighs_losses ? Targets(in) : ops::Array();
    const Wide wide = WideOf(in);
    ops::Calls calls;
    calls.Add(ops_.RouteBackward(s_.router, logits, Ranked(in, chosen), chosen, in.Gradient("probabilities"),
                                 grad_logits));
    calls.Add(ops_.RouterLossesBackward(s_.router, s_.router_losses, logits, balance_counts, targets,
                                        grad_logits, in.Work("router_work")));
    calls.Add(ops_.RmsNorm(x, norm, norms_, normed));
    const bool trains = in.HasParameterGradient("router");
    AddMatrixGradient("router", grad_logits, trains ? Widened(normed, wide.rows, calls) : normed, in, calls);
    // The router's share first, then what came through the experts, then through the shared ones.
    const ops::Array share = s_.widens ? wide.rows : grad_normed;
    const ops::Array wide_router = Widened(router, wide.router, calls);
    calls.Add(ops_.LinearBackwardInput(grad_logits, wide_router, /*add=*/false, share, products));
    if (s_.widens) {
      calls.Add(ops_.Copy(share, grad_normed));
    }
    calls.Add(ops_.Add(in.Gradient("normed"), grad_normed));
    AddSharedBackward(in, normed, grad_normed, calls);
    calls.Add(ops_.RmsNormBackward(grad_normed, x, norm, norms_, /*residual=*/{}, in.AddsToGradient("x"),
                                   in.Gradient("x"), in.AddsToParameterGradient("norm"),
                                   in.ParameterGradient("norm"), in.Work("norm_work")));
    return calls;
  }

  void AddSharedBackward(BoundArrays& in, const ops::Array& normed, const ops::Array& grad_normed,
                         ops::Calls& calls) const {
    if (s_.shared_inner == 0) {
      return;
    }
    const ops::Array grad_made = in.Gradient("shared");
    const ops::Array gates = s_.gates_shared ? in.Value("shared_gates") : ops::Array();
    const ops::Array grad_gates = s_.gates_shared ? in.Scratch("grad_shared_gates") : ops::Array();
    const bool add = in.AddsToParameterGradient("router");
    const ops::Array activated = in.Scratch("shared_activated");
    const ops::Array grad_gate_up = in.Scratch("grad_shared_gate_up");
    const ops::Array grad_share = in.Scratch("grad_shared_normed");
    const ops::Workspace products = in.Work("products");
    // `activated` is first the activation's gradient, then the activation itself.
    calls.Add(ops_.LinearBackwardInput(grad_made, in.Parameter("shared_down"), /*add=*/false, activated,
                                       products, s_.residual_multiplier));
    calls.Add(ops_.SwiGluBackward(in.Value("shared_gate_up"), activated, grad_gate_up, activated, gates,
                                  grad_gates));
    if (s_.gates_shared) {
      calls.Add(ops_.TokenGateBackward(grad_gates, normed, in.Parameter("shared_expert_gate"), gates,
                                       grad_normed, add, in.ParameterGradient("shared_expert_gate"),
                                       in.Work("norm_work")));
    }
    AddMatrixGradient("shared_down", grad_made, activated, in, calls, s_.residual_multiplier);
    AddMatrixGradient("shared_gate_up", grad_gate_up, normed, in, calls);
    calls.Add(ops_.LinearBackwardInput(grad_gate_up, in.Parameter("shared_gate_up"), /*add=*/false,
                                       grad_share, products));
    calls.Add(ops_.Add(grad_share, grad_normed));
  }

  // As the router chose; `chosen` itself where nothing is dropped.
  ops::Array Ranked(BoundArrays& in, const ops::Array& chosen) const {
    return s_.capacity.factor > 0 ? in.Value("ranked") : chosen;
  }

  // Scratch in the type of statistics; not defined where the router computes in what the node computes in.
  struct Wide {
    ops::Array rows, router;
  };
  Wide WideOf(BoundArrays& in) const {
    return s_.widens ? Wide{in.Scratch("wide"), in.Scratch("wide_router")} : Wide{};
  }
  ops::Array Widened(const ops::Array& array, const ops::Array& wide, ops::Calls& calls) const {
    if (!s_.widens) {
      return array;
    }
    calls.Add(ops_.Copy(array, wide));
    return wide;
  }
};

class BalanceNode final : public DeclaredNode {
 public:
  using DeclaredNode::DeclaredNode;

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    comm::Communicator& communicator = in.Communicator();
    const ops::Array logits = in.Value("logits");
    const ops::Array counts = in.Value("balance_counts");
    const ops::Array by_rank = in.Scratch("by_rank");
    const ops::Array own = by_rank.Rows(communicator.rank(), 1);
    ops::Calls calls;
    calls.Add(ops_.CountLargest(s_.router, logits, own));
    calls.Add(
        [own = own.memory(), all = by_rank.memory(), &communicator] { communicator.AllGather(own, all); });
    calls.Add(
        ops_.MeanCounts(by_rank, s_.tokens * s_.chosen, in.ContinuesState("seen"), in.State("seen"), counts));
    calls.Add(ops_.RouterLosses(s_.router, s_.router_losses, logits, counts, in.Value("losses"),
                                in.Work("router_work")));
    return calls;
  }

  BoundPass BindBackward(BoundArrays&) const override {
    throw std::logic_error("the tokens of the balance have no gradient");
  }
};

}  // namespace

std::unique_ptr<Node> MakeRouteNode(const NodeContext& context) {
  return std::make_unique<RouteNode>(context);
}

std::unique_ptr<Node> MakeBalanceNode(const NodeContext& context) {
  return std::make_unique<BalanceNode>(context);
}

}  // namespace tandem::model
