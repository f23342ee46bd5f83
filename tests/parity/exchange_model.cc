// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/exchange_model.h"

#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <utility>

#include "comm/communicator.h"
#include "model/bound_arrays.h"
#include "model/declared_node.h"
#include "model/node_kinds.h"
#include "ops/tensors.h"
#include "plan/build_stage.h"

namespace tandem::parity {
namespace {

template <schedules::Place place>
model::NodeDeclaration DeclareExchange(const model::DecoderShapes& s) {
  const double bytes = static_cast<double>(s.tokens * s.hidden * s.compute_bytes);
  return {
      .place = place,
      .inputs = {model::HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, model::ElementType::kHidden},
                   .gradient = true,
                   .kind = schedules::ValueKind::kAllToAll}},
      .states = {{"rows", {1}, model::ElementType::kInt64}},
      .stream = "dispatch",
      .group = "ep",
      .purpose = "dispatch",
      .forward = {.reads = {"x"}, .writes = {"hidden"}, .state_adds = {"rows"}, .link_bytes = bytes},
      .backward_input = {.gradient_reads = {"hidden"}, .gradient_writes = {"x"}, .link_bytes = bytes},
  };
}

constexpr model::NodeKind kAhead = {.name = "dispatch",
                                    .declare = DeclareExchange<schedules::Place::kDispatch>};
constexpr model::NodeKind kBehind = {.name = "combine",
                                     .declare = DeclareExchange<schedules::Place::kCombine>};

class ExchangeNode final : public model::DeclaredNode {
 public:
  ExchangeNode(const model::NodeContext& context, const model::NodeKind& kind,
               std::function<void(const char*)> before)
      : DeclaredNode(context, kind.declare(context.shapes)), before_(std::move(before)) {}

 private:
  model::BoundPass BindForward(model::BoundArrays& in) const override {
    return [this, x = ops::TensorOf(in.Value("x")), hidden = ops::TensorOf(in.Value("hidden")),
            rows = ops::TensorOf(in.State("rows")), &communicator = in.Communicator()]() mutable {
      before_("forward");
      communicator.AllToAll(x, hidden);
      if (rows.defined()) {  // in training
        rows.add_(s_.tokens);
      }
    };
  }

  model::BoundPass BindBackward(model::BoundArrays& in) const override {
    if (in.AddsToGradient("x")) {
      throw std::logic_error("an all-to-all adds to nothing");
    }
    return [this, grad_hidden = ops::TensorOf(in.Gradient("hidden")),
            grad_x = ops::TensorOf(in.Gradient("x")), &communicator = in.Communicator()]() mutable {
      before_("backward");
      communicator.AllToAll(grad_hidden, grad_x);
    };
  }

  const std::function<void(const char*)> before_;
};

}  // namespace

plan::JobPlan ExchangeJob(const JobOptions& options, schedules::Schedule schedule) {
  plan::JobPlan plan = MakeJob(options);
  parallel::Group all{.name = "ep"};
  for (int rank = 0; rank < options.ranks; ++rank) {
    all.ranks.push_back(rank);
  }
  plan.groups.push_back(std::move(all));
  plan.model.layers.assign(options.layers, {&model::kAttention, &kAhead, &model::kMlp, &kBehind});
  plan::BuildOutline(plan);
  plan.schedule = schedule;
  plan::BuildPrograms(plan);
  return plan;
}

std::function<std::vector<std::unique_ptr<model::Node>>(const ops::Operations& ops)> ExchangeNodes(
    const plan::JobPlan& plan, std::function<void(const std::string& node, const char* pass)> before) {
  return [&plan, before = std::move(before)](const ops::Operations& ops) {
    const auto maker = [&](const model::NodeKind& kind) {
      return [&](const model::NodeContext& context) {
        return std::make_unique<ExchangeNode>(
            context, kind, [before, name = context.unit + "." + kind.name](const char* pass) {
              if (before) {
                before(name, pass);
              }
            });
      };
    };
    return model::DecoderNodes(plan.model, plan.batch, plan.precision, ops,
                               {{&kAhead, maker(kAhead)}, {&kBehind, maker(kBehind)}});
  };
}

}  // namespace tandem::parity
