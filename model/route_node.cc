// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/router.h"
#include "ops/router_losses.h"

namespace tandem::model {
namespace {

// By the names of route.cc. What is wide is undefined where nothing is computed in another type.
struct RouteForward {
  at::Tensor x, normed, logits, chosen, probabilities, report;
  at::Tensor norm, router;
  at::Tensor wide, wide_router;
  ops::Workspace products;
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
  ops::Workspace products, norm_work;
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
                   .products = in.Work("products")};
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
                    .norm_work = in.Work("norm_work")};
    return [this, t]() mutable { Backward(t); };
  }

  // A recompute leaves out what was kept, from the end.
  void Forward(RouteForward& t) const {
    if (!t.normed.defined()) {
      return;
    }
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    if (!t.logits.defined()) {
      return;
    }
    ops_.Linear(Widened(t.normed, t.wide), Widened(t.router, t.wide_router), /*residual=*/at::Tensor(),
                t.logits, t.products);
    if (!t.chosen.defined()) {
      return;
    }
    ops::Route(s_.router, t.logits, /*bias=*/at::Tensor(), t.chosen, t.probabilities);
    if (t.report.defined()) {  // a recompute says nothing again
      Report(t);
    }
  }

  void Report(RouteForward& t) const {
    at::Tensor tokens = t.report.narrow(0, 0, s_.report.experts);
    ops::CountTokens(t.chosen, tokens);
    t.report.mutable_data_ptr<double>()[s_.report.dropped()] = 0;
    at::Tensor losses = t.report.narrow(0, s_.report.balance(), 2);
    ops::RouterLosses(s_.router, s_.router_losses, t.logits, losses);
  }

  void Backward(RouteBackward& t) const {
    ops::RouteBackward(s_.router, t.logits, t.chosen, t.grad_probabilities, t.grad_logits);
    ops::RouterLossesBackward(s_.router, s_.router_losses, t.logits, t.grad_logits);
    if (t.grad_router.defined()) {
      ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
      ops_.LinearBackwardWeight(t.grad_logits, Widened(t.normed, t.wide), t.add_router, t.grad_router,
                                t.products);
    }
    // The router's share first, then what came through the experts.
    at::Tensor& share = s_.widens ? t.wide : t.grad_normed;
    ops_.LinearBackwardInput(t.grad_logits, Widened(t.router, t.wide_router), share, t.products);
    if (s_.widens) {
      t.grad_normed.copy_(share);
    }
    t.grad_normed.add_(t.grad_normed_in);
    ops_.RmsNormBackward(t.grad_normed, t.x, t.norm, epsilon_, /*residual=*/at::Tensor(), t.add_x, t.grad_x,
                         t.add_norm, t.grad_norm, t.norm_work);
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
