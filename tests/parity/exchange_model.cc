// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/exchange_model.h"

#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <utility>

#include "comm/communicator.h"
#include "model/bound_tensors.h"
#include "model/declared_node.h"
#include "model/decoder_outline.h"
#include "model/node_kinds.h"
#include "plan/build_stage.h"

namespace tandem::parity {
namespace {

using schedules::NodeKind;

model::NodeDeclaration DeclareExchange(NodeKind kind, const model::DecoderShapes& s) {
  const double bytes = static_cast<double>(s.tokens * s.hidden * s.compute_bytes);
  return {
      .kind = kind,
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

class ExchangeNode final : public model::DeclaredNode {
 public:
  ExchangeNode(const model::NodeContext& context, NodeKind kind, std::function<void(const char*)> before)
      : DeclaredNode(context, DeclareExchange(kind, context.shapes)), before_(std::move(before)) {}

 private:
  model::BoundPass BindForward(model::BoundTensors& in) const override {
    return [this, x = in.Value("x"), hidden = in.Value("hidden"), rows = in.State("rows"),
            &communicator = in.Communicator()]() mutable {
      before_("forward");
      communicator.AllToAll(x, hidden);
      if (rows.defined()) {  // in training
        rows.add_(s_.tokens);
      }
    };
  }

  model::BoundPass BindBackward(model::BoundTensors& in) const override {
    if (in.AddsToGradient("x")) {
      throw std::logic_error("an all-to-all adds to nothing");
    }
    return [this, grad_hidden = in.Gradient("hidden"), grad_x = in.Gradient("x"),
            &communicator = in.Communicator()]() mutable {
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
  std::vector<model::DeclaredPlace> nodes;
  for (const model::DecoderNode& node : model::DecoderNodeList(plan.model)) {
    const model::NodeTypes types(plan.precision, node.unit);
    const model::DecoderShapes shapes(plan.model, plan.batch, types.unit.compute, model::DeviceKind::kCpu);
    const auto exchange = [&](NodeKind kind, const char* name) {
      nodes.push_back({.name = node.unit + "." + name,
                       .layer = node.layer,
                       .unit = node.unit,
                       .declaration = DeclareExchange(kind, shapes)});
    };
    const bool is_mlp = node.kind == NodeKind::kMlp;
    if (is_mlp) {
      exchange(NodeKind::kDispatch, "dispatch");
    }
    nodes.push_back({.name = node.name,
                     .layer = node.layer,
                     .unit = node.unit,
                     .declaration = model::Declare(node.kind, shapes)});
    if (is_mlp) {
      exchange(NodeKind::kCombine, "combine");
    }
  }
  const model::DecoderShapes shapes(plan.model, plan.batch, plan.precision.hidden(), model::DeviceKind::kCpu);
  plan.outline = model::WriteOutline(nodes, model::BatchTokens(shapes).tensor, plan.units,
                                     plan::UnitLayouts(plan.layouts), plan.precision);
  plan.schedule = schedule;
  plan::BuildPrograms(plan);
  return plan;
}

std::function<std::vector<std::unique_ptr<model::Node>>(const ops::Operations& ops)> ExchangeNodes(
    const plan::JobPlan& plan, std::function<void(const std::string& node, const char* pass)> before) {
  return [&plan, before = std::move(before)](const ops::Operations& ops) {
    std::vector<std::unique_ptr<model::Node>> decoder =
        model::DecoderNodes(plan.model, plan.batch, plan.precision, ops);
    std::vector<std::unique_ptr<model::Node>> nodes;
    size_t next = 0;  // of the decoder's
    for (const schedules::Node& node : plan.outline.nodes) {
      if (node.kind != NodeKind::kDispatch && node.kind != NodeKind::kCombine) {
        nodes.push_back(std::move(decoder.at(next++)));
        continue;
      }
      const std::string unit = node.name.substr(0, node.name.rfind('.'));
      const model::NodeTypes types(plan.precision, unit);
      nodes.push_back(std::make_unique<ExchangeNode>(
          model::NodeContext{.config = plan.model,
                             .shapes = {plan.model, plan.batch, types.unit.compute, model::DeviceKind::kCpu},
                             .types = types,
                             .unit = unit,
                             .ops = ops},
          node.kind, [before, name = node.name](const char* pass) {
            if (before) {
              before(name, pass);
            }
          }));
    }
    return nodes;
  };
}

}  // namespace tandem::parity
