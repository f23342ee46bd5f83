// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/router.h"
#include "ops/sparse_operations.h"

namespace tandem::model {
namespace {

// Tensors have the names of route.cc. What is wide is undefined where nothing is computed in another type.
class RouteNode final : public DeclaredNode {
 public:
  explicit RouteNode(const NodeContext& context) : DeclaredNode(context, kRoute.declare(context.shapes)) {
    ops::CheckRouter(s_.router);
  }

 private:
  // A recompute leaves out what was kept, of the router and of the shared experts from the end.
  BoundPass BindForward(BoundTensors& in) const override {
    at::Tensor normed = in.Value("normed");
    at::Tensor logits = in.Value("logits");
    at::Tensor chosen = in.Value("chosen");
    return [this, normed, logits, chosen, x = in.Value("x"), probabilities = in.Value("probabilities"),
            norm = in.Parameter("norm"), router = in.Parameter("router"),
            wide = s_.widens ? in.Scratch("wide") : at::Tensor(),
            wide_router = s_.widens ? in.Scratch("wide_router") : at::Tensor(),
            products = in.Work("products"), router_work = in.Work("router_work"), ranked = Ranked(in, chosen),
            bias = s_.biased ? in.State("bias") : at::Tensor(), report = BindReport(in, chosen, logits),
            shared = BindShared(in, normed)]() mutable {
      if (normed.defined()) {
        ops_.RmsNorm(x, norm, epsilon_, normed);
      }
      if (logits.defined()) {
        ops_.Linear(Widened(normed, wide), Widened(router, wide_router), /*residual=*/at::Tensor(), logits,
                    products);
      }
      if (chosen.defined()) {
        ops_.sparse().Route(s_.router, logits, bias, ranked, probabilities);
        if (s_.capacity.factor > 0) {
          ops_.sparse().DropOverflow(s_.capacity.policy, ops::CapacityOf(s_.router, s_.capacity, s_.tokens),
                                     s_.router.experts, ranked, chosen, probabilities, router_work);
        }
      }
      report();
      shared();
    };
  }

  BoundPass BindReport(BoundTensors& in, const at::Tensor& chosen, const at::Tensor& logits) const {
    return [this, chosen, logits, report = in.Value("report"),
            counted = s_.biased ? in.State("tokens") : at::Tensor(), work = in.Work("router_work")] {
      if (!report.defined()) {
        return;
      }
      at::Tensor tokens = report.narrow(0, 0, s_.report.experts);
      at::Tensor dropped = report.narrow(0, s_.report.dropped(), 1);
      ops_.sparse().CountTokens(chosen, tokens, dropped);
      if (counted.defined()) {
        counted.add_(tokens);
      }
      at::Tensor losses = report.narrow(0, s_.report.balance(), 2);
      if (s_.balances_globally) {
        losses.zero_();
        return;
      }
      ops_.sparse().RouterLosses(s_.router, s_.router_losses, logits, /*counts=*/at::Tensor(), losses, work);
    };
  }

  // The MLP that sees every token; nothing where there is none.
  BoundPass BindShared(BoundTensors& in, const at::Tensor& normed) const {
    if (s_.shared_inner == 0) {
      return [] {};
    }
    return [this, normed, gate_up = in.Value("shared_gate_up"), made = in.Value("shared"),
            weight_gate_up = in.Parameter("shared_gate_up"), weight_down = in.Parameter("shared_down"),
            activated = in.Scratch("shared_activated"), products = in.Work("products")]() mutable {
      if (gate_up.defined()) {
        ops_.Linear(normed, weight_gate_up, /*residual=*/at::Tensor(), gate_up, products);
      }
      if (made.defined()) {
        ops_.SwiGlu(gate_up, activated);
        ops_.Linear(activated, weight_down, /*residual=*/at::Tensor(), made, products);
      }
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    const at::Tensor chosen = in.Value("chosen");
    return
        [this, chosen, x = in.Value("x"), logits = in.Value("logits"), grad_normed_in = in.Gradient("normed"),
         grad_probabilities = in.Gradient("probabilities"), grad_x = in.Gradient("x"),
         add_x = in.AddsToGradient("x"), norm = in.Parameter("norm"), router = in.Parameter("router"),
         grad_norm = in.ParameterGradient("norm"), grad_router = in.ParameterGradient("router"),
         add_norm = in.AddsToParameterGradient("norm"), add_router = in.AddsToParameterGradient("router"),
         normed = in.Scratch("normed"), grad_normed = in.Scratch("grad_normed"),
         grad_logits = in.Scratch("grad_logits"), wide = s_.widens ? in.Scratch("wide") : at::Tensor(),
         wide_router = s_.widens ? in.Scratch("wide_router") : at::Tensor(), products = in.Work("products"),
         norm_work = in.Work("norm_work"), router_work = in.Work("router_work"), ranked = Ranked(in, chosen),
         balance_counts = s_.balances_globally ? in.Value("balance_counts") : at::Tensor(),
         shared = BindSharedBackward(in)]() mutable {
          ops_.sparse().RouteBackward(s_.router, logits, ranked, chosen, grad_probabilities, grad_logits);
          ops_.sparse().RouterLossesBackward(s_.router, s_.router_losses, logits, balance_counts, grad_logits,
                                             router_work);
          ops_.RmsNorm(x, norm, epsilon_, normed);
          if (grad_router.defined()) {
            ops_.LinearBackwardWeight(grad_logits, Widened(normed, wide), add_router, grad_router, products);
          }
          // The router's share first, then what came through the experts, then through the shared ones.
          at::Tensor& share = s_.widens ? wide : grad_normed;
          ops_.LinearBackwardInput(grad_logits, Widened(router, wide_router), /*add=*/false, share, products);
          if (s_.widens) {
            grad_normed.copy_(share);
          }
          grad_normed.add_(grad_normed_in);
          shared();
          ops_.RmsNormBackward(grad_normed, x, norm, epsilon_, /*residual=*/at::Tensor(), add_x, grad_x,
                               add_norm, grad_norm, norm_work);
        };
  }

  BoundPass BindSharedBackward(BoundTensors& in) const {
    if (s_.shared_inner == 0) {
      return [] {};
    }
    return
        [this, normed = in.Scratch("normed"), grad_normed = in.Scratch("grad_normed"),
         gate_up = in.Value("shared_gate_up"), grad_made = in.Gradient("shared"),
         weight_gate_up = in.Parameter("shared_gate_up"), weight_down = in.Parameter("shared_down"),
         grad_weight_gate_up = in.ParameterGradient("shared_gate_up"),
         grad_weight_down = in.ParameterGradient("shared_down"), add = in.AddsToParameterGradient("router"),
         activated = in.Scratch("shared_activated"), grad_gate_up = in.Scratch("grad_shared_gate_up"),
         grad_share = in.Scratch("grad_shared_normed"), products = in.Work("products")]() mutable {
          // `activated` is first the activation's gradient, then the activation itself.
          ops_.LinearBackwardInput(grad_made, weight_down, /*add=*/false, activated, products);
          ops_.SwiGluBackward(gate_up, activated, grad_gate_up, activated);
          if (grad_weight_down.defined()) {
            ops_.LinearBackwardWeight(grad_made, activated, add, grad_weight_down, products);
          }
          if (grad_weight_gate_up.defined()) {
            ops_.LinearBackwardWeight(grad_gate_up, normed, add, grad_weight_gate_up, products);
          }
          ops_.LinearBackwardInput(grad_gate_up, weight_gate_up, /*add=*/false, grad_share, products);
          grad_normed.add_(grad_share);
        };
  }

  // As the router chose; `chosen` itself where nothing is dropped.
  at::Tensor Ranked(BoundTensors& in, const at::Tensor& chosen) const {
    return s_.capacity.factor > 0 ? in.Value("ranked") : chosen;
  }

  // In the type of statistics.
  const at::Tensor& Widened(const at::Tensor& tensor, at::Tensor& wide) const {
    return s_.widens ? wide.copy_(tensor) : tensor;
  }
};

}  // namespace

std::unique_ptr<Node> MakeRouteNode(const NodeContext& context) {
  return std::make_unique<RouteNode>(context);
}

}  // namespace tandem::model
