// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/router.h"
#include "ops/sparse_operations.h"

namespace tandem::model {
namespace {

// The tensors of the MLP that sees every token; all undefined where there is none.
struct SharedForward {
  at::Tensor gate_up, made, weight_gate_up, weight_down, activated;
};

struct SharedBackward {
  at::Tensor gate_up, grad_made, weight_gate_up, weight_down, grad_weight_gate_up, grad_weight_down;
  at::Tensor activated, grad_gate_up, grad_normed;
};

// By the names of route.cc. What is wide is undefined where nothing is computed in another type.
struct RouteForward {
  at::Tensor x, normed, logits, chosen, probabilities, report;
  at::Tensor norm, router;
  at::Tensor wide, wide_router;
  at::Tensor bias;     // undefined: none
  at::Tensor counted;  // tokens of each expert in this step; undefined: they do not count
  at::Tensor ranked;   // `chosen` itself where nothing is dropped
  SharedForward shared;
  ops::Workspace products, router_work;
};

struct RouteBackward {
  at::Tensor x, logits, chosen, grad_normed_in, grad_probabilities;
  at::Tensor grad_x;
  bool add_x = false;
  at::Tensor norm, router;
  at::Tensor grad_norm, grad_router;
  bool add_norm = false;
  bool add_router = false;
  at::Tensor normed, grad_normed, grad_logits, wide, wide_router;
  at::Tensor ranked;          // `chosen` itself where nothing is dropped
  at::Tensor balance_counts;  // undefined: those of the microbatch
  SharedBackward shared;
  ops::Workspace products, norm_work, router_work;
};

class RouteNode final : public DeclaredNode {
 public:
  explicit RouteNode(const NodeContext& context) : DeclaredNode(context, DeclareRoute(context.shapes)) {
    ops::CheckRouter(s_.router);
  }

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    RouteForward t{.x = in.Value("x"),
                   .normed = in.Value("normed"),
                   .logits = in.Value("logits"),
                   .chosen = in.Value("chosen"),
                   .probabilities = in.Value("probabilities"),
                   .report = in.Value("report"),
                   .norm = in.Parameter("norm"),
                   .router = in.Parameter("router"),
                   .wide = s_.widens ? in.Scratch("wide") : at::Tensor(),
                   .wide_router = s_.widens ? in.Scratch("wide_router") : at::Tensor(),
                   .products = in.Work("products"),
                   .router_work = in.Work("router_work")};
    t.ranked = s_.capacity.factor > 0 ? in.Value("ranked") : t.chosen;
    if (s_.biased) {
      t.bias = in.State("bias");
      t.counted = in.State("tokens");
    }
    if (s_.shared_inner > 0) {
      t.shared = {.gate_up = in.Value("shared_gate_up"),
                  .made = in.Value("shared"),
                  .weight_gate_up = in.Parameter("shared_gate_up"),
                  .weight_down = in.Parameter("shared_down"),
                  .activated = in.Scratch("shared_activated")};
    }
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    RouteBackward t{.x = in.Value("x"),
                    .logits = in.Value("logits"),
                    .chosen = in.Value("chosen"),
                    .grad_normed_in = in.Gradient("normed"),
                    .grad_probabilities = in.Gradient("probabilities"),
                    .grad_x = in.Gradient("x"),
                    .add_x = in.AddsToGradient("x"),
                    .norm = in.Parameter("norm"),
                    .router = in.Parameter("router"),
                    .grad_norm = in.ParameterGradient("norm"),
                    .grad_router = in.ParameterGradient("router"),
                    .add_norm = in.AddsToParameterGradient("norm"),
                    .add_router = in.AddsToParameterGradient("router"),
                    .normed = in.Scratch("normed"),
                    .grad_normed = in.Scratch("grad_normed"),
                    .grad_logits = in.Scratch("grad_logits"),
                    .wide = s_.widens ? in.Scratch("wide") : at::Tensor(),
                    .wide_router = s_.widens ? in.Scratch("wide_router") : at::Tensor(),
                    .products = in.Work("products"),
                    .norm_work = in.Work("norm_work"),
                    .router_work = in.Work("router_work")};
    t.ranked = s_.capacity.factor > 0 ? in.Value("ranked") : t.chosen;
    if (s_.balances_globally) {
      t.balance_counts = in.Value("balance_counts");
    }
    if (s_.shared_inner > 0) {
      t.shared = {.gate_up = in.Value("shared_gate_up"),
                  .grad_made = in.Gradient("shared"),
                  .weight_gate_up = in.Parameter("shared_gate_up"),
                  .weight_down = in.Parameter("shared_down"),
                  .grad_weight_gate_up = in.ParameterGradient("shared_gate_up"),
                  .grad_weight_down = in.ParameterGradient("shared_down"),
                  .activated = in.Scratch("shared_activated"),
                  .grad_gate_up = in.Scratch("grad_shared_gate_up"),
                  .grad_normed = in.Scratch("grad_shared_normed")};
    }
    return [this, t]() mutable { Backward(t); };
  }

  // A recompute leaves out what was kept, of the router and of the shared experts from the end.
  void Forward(RouteForward& t) const {
    if (t.normed.defined()) {
      ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    }
    if (t.logits.defined()) {
      ops_.Linear(Widened(t.normed, t.wide), Widened(t.router, t.wide_router), /*residual=*/at::Tensor(),
                  t.logits, t.products);
    }
    if (t.chosen.defined()) {
      ops_.sparse().Route(s_.router, t.logits, t.bias, t.ranked, t.probabilities);
      if (s_.capacity.factor > 0) {
        ops_.sparse().DropOverflow(s_.capacity.policy, ops::CapacityOf(s_.router, s_.capacity, s_.tokens),
                                   s_.router.experts, t.ranked, t.chosen, t.probabilities, t.router_work);
      }
    }
    if (t.report.defined()) {
      Report(t);
    }
    SharedForward& shared = t.shared;
    if (shared.gate_up.defined()) {
      ops_.Linear(t.normed, shared.weight_gate_up, /*residual=*/at::Tensor(), shared.gate_up, t.products);
    }
    if (shared.made.defined()) {
      ops_.SwiGlu(shared.gate_up, shared.activated);
      ops_.Linear(shared.activated, shared.weight_down, /*residual=*/at::Tensor(), shared.made, t.products);
    }
  }

  void Report(RouteForward& t) const {
    at::Tensor tokens = t.report.narrow(0, 0, s_.report.experts);
    at::Tensor dropped = t.report.narrow(0, s_.report.dropped(), 1);
    ops_.sparse().CountTokens(t.chosen, tokens, dropped);
    if (t.counted.defined()) {
      t.counted.add_(tokens);
    }
    at::Tensor losses = t.report.narrow(0, s_.report.balance(), 2);
    if (s_.balances_globally) {
      losses.zero_();
      return;
    }
    ops_.sparse().RouterLosses(s_.router, s_.router_losses, t.logits, /*counts=*/at::Tensor(), losses,
                               t.router_work);
  }

  void Backward(RouteBackward& t) const {
    ops_.sparse().RouteBackward(s_.router, t.logits, t.ranked, t.chosen, t.grad_probabilities, t.grad_logits);
    ops_.sparse().RouterLossesBackward(s_.router, s_.router_losses, t.logits, t.balance_counts, t.grad_logits,
                                       t.router_work);
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    if (t.grad_router.defined()) {
      ops_.LinearBackwardWeight(t.grad_logits, Widened(t.normed, t.wide), t.add_router, t.grad_router,
                                t.products);
    }
    // The router's share first, then what came through the experts, then through the shared ones.
    at::Tensor& share = s_.widens ? t.wide : t.grad_normed;
    ops_.LinearBackwardInput(t.grad_logits, Widened(t.router, t.wide_router), /*add=*/false, share,
                             t.products);
    if (s_.widens) {
      t.grad_normed.copy_(share);
    }
    t.grad_normed.add_(t.grad_normed_in);
    if (s_.shared_inner > 0) {
      BackwardShared(t);
    }
    ops_.RmsNormBackward(t.grad_normed, t.x, t.norm, epsilon_, /*residual=*/at::Tensor(), t.add_x, t.grad_x,
                         t.add_norm, t.grad_norm, t.norm_work);
  }

  void BackwardShared(RouteBackward& t) const {
    SharedBackward& shared = t.shared;
    // `activated` is first the activation's gradient, then the activation itself.
    ops_.LinearBackwardInput(shared.grad_made, shared.weight_down, /*add=*/false, shared.activated,
                             t.products);
    ops_.SwiGluBackward(shared.gate_up, shared.activated, shared.grad_gate_up, shared.activated);
    if (shared.grad_weight_down.defined()) {
      ops_.LinearBackwardWeight(shared.grad_made, shared.activated, t.add_router, shared.grad_weight_down,
                                t.products);
    }
    if (shared.grad_weight_gate_up.defined()) {
      ops_.LinearBackwardWeight(shared.grad_gate_up, t.normed, t.add_router, shared.grad_weight_gate_up,
                                t.products);
    }
    ops_.LinearBackwardInput(shared.grad_gate_up, shared.weight_gate_up, /*add=*/false, shared.grad_normed,
                             t.products);
    t.grad_normed.add_(shared.grad_normed);
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
