// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "model/node_kinds.h"
#include "ops/sparse_work.h"

namespace tandem::model {
namespace {

int64_t LossesWorkBytes(const DecoderShapes& s) {
  return ops::RouterLossesWorkBytes(s.device, s.tokens, s.tokens / s.router_losses.sequence_length,
                                    s.router.experts);
}

// What the choice and the losses need, one after the other.
int64_t RouterWorkBytes(const DecoderShapes& s) {
  const int64_t drops =
      s.capacity.factor > 0 ? ops::DropWorkBytes(s.device, s.tokens * s.chosen, s.router.experts) : 0;
  return std::max(LossesWorkBytes(s), drops);
}

void AddSharedExperts(const DecoderShapes& s, NodeDeclaration& declaration) {
  declaration.outputs.push_back(
      {.tensor = {"shared_gate_up", {s.tokens, 2 * s.shared_inner}}, .computed_from = {"normed"}});
  std::vector<std::string> made_from = {"shared_gate_up"};
  if (s.gates_shared) {
    made_from.emplace_back("shared_gates");
    declaration.outputs.push_back(
        {.tensor = {"shared_gates", {s.tokens}, ElementType::kStatistics}, .computed_from = {"normed"}});
    declaration.backward_input.reads.emplace_back("shared_gates");
    declaration.backward_input.scratch.push_back({"grad_shared_gates", {s.tokens}, ElementType::kStatistics});
  }
  declaration.outputs.push_back({.tensor = {"shared", {s.tokens, s.hidden}, ElementType::kHidden},
                                 .gradient = true,
                                 .computed_from = std::move(made_from),
                                 .flops = s.ProductFlops(s.shared_inner, s.hidden)});
  std::vector<ParameterSpec>& parameters = declaration.parts[0].parameters;
  for (const char* name : {"shared_gate", "shared_up"}) {
    parameters.push_back({.name = name, .shape = {s.shared_inner, s.hidden}, .block = "shared_gate_up"});
  }
  parameters.push_back({.name = "shared_down", .shape = {s.hidden, s.shared_inner}});
  if (s.gates_shared) {
    parameters.push_back(
        {.name = "shared_expert_gate", .shape = {1, s.hidden}, .gradient_is_statistics = true});
  }
  const TensorSpec activated{"shared_activated", {s.tokens, s.shared_inner}};  // backward: first its gradient
  declaration.forward.scratch.push_back(activated);
  declaration.backward_input.reads.emplace_back("shared_gate_up");
  declaration.backward_input.gradient_reads.emplace_back("shared");
  declaration.backward_input.scratch.insert(declaration.backward_input.scratch.end(),
                                            {activated,
                                             {"grad_shared_gate_up", {s.tokens, 2 * s.shared_inner}},
                                             {"grad_shared_normed", {s.tokens, s.hidden}}});
}

// normed = norm(x); logits = router · normed; chosen and probabilities of ops/router.h. Logits are computed
// in the type of statistics, from copies of both operands where that is another. The backward recomputes the
// norm, and adds the gradients of the router's own losses, times the share of the targets that count. report:
// model/decoder_shapes.h. Where the balance is global, the node behind this one writes balance_counts, and
// has its value. Where experts have room for some tokens only, `chosen` is -1 where a choice was dropped.
// Where routers have biases, they choose by them, and count the tokens of each expert for the next one. Where
// an MLP sees every token beside the experts: shared = multiplier · Wdown · swiglu(Wgate_up · normed), of
// which gate and up are kept; or with a gate of the token multiplier · Wdown · (swiglu(...) · sigmoid(gate ·
// normed)), a number that is kept too.
NodeDeclaration DeclareRoute(const DecoderShapes& s) {
  const double shared_flops = s.ProductFlops(s.hidden, 3 * s.shared_inner + (s.gates_shared ? 1 : 0));
  const double flops = s.ProductFlops(s.hidden, s.router.experts) + shared_flops;
  const double widened = s.widens ? s.Elements(3 * s.hidden) : 0;  // read, and written twice as wide
  std::vector<TensorSpec> forward_scratch = {ProductsWork(s),
                                             {"router_work", {RouterWorkBytes(s)}, ElementType::kByte}};
  std::vector<TensorSpec> backward_scratch = {
      {"normed", {s.tokens, s.hidden}},
      {"grad_normed", {s.tokens, s.hidden}},
      {"grad_logits", {s.tokens, s.router.experts}, ElementType::kStatistics},
      NormWork(s),
      ProductsWork(s),
      {"router_work", {LossesWorkBytes(s)}, ElementType::kByte}};
  if (s.widens) {
    const TensorSpec wide{"wide", {s.tokens, s.hidden}, ElementType::kStatistics};
    const TensorSpec wide_router{"wide_router", {s.router.experts, s.hidden}, ElementType::kStatistics};
    forward_scratch.insert(forward_scratch.end(), {wide, wide_router});
    backward_scratch.insert(backward_scratch.end(), {wide, wide_router});
  }
  NodeDeclaration declaration{
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"normed", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true},
                  {.tensor = {"logits", {s.tokens, s.router.experts}, ElementType::kStatistics},
                   .computed_from = {"normed"}},
                  {.tensor = {"chosen", {s.tokens, s.chosen}, ElementType::kInt64},
                   .computed_from = {"logits", "probabilities"}},
                  {.tensor = {"probabilities", {s.tokens, s.chosen}, ElementType::kStatistics},
                   .gradient = true,
                   .computed_from = {"logits", "chosen"}},
                  {.tensor = {"report", {s.report.size()}, ElementType::kFloat64}, .loss = true}},
      .parts = {{.name = "router",
                 .parameters = {NormOver(s, "norm", s.hidden),
                                {.name = "router",
                                 .shape = {s.router.experts, s.hidden},
                                 .gradient_is_statistics = true}}}},
      .forward = {.reads = {"x"},
                  .parameters = true,
                  .scratch = std::move(forward_scratch),
                  .flops = flops,
                  .row_elements = s.Elements(2 * s.hidden + 3 * s.shared_inner) + widened},
      .backward_input = {.reads = {"x", "logits", "chosen"},
                         .gradient_reads = {"normed", "probabilities"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .parameter_gradients = true,
                         .scratch = std::move(backward_scratch),
                         .flops = 2 * flops,
                         .row_elements = s.Elements(6 * s.hidden + 6 * s.shared_inner) + widened},
      .recomputes = true,
  };
  if (s.shared_inner > 0) {
    AddSharedExperts(s, declaration);
  }
  if (s.capacity.factor > 0) {
    // As the router chose, before choices were dropped.
    declaration.outputs.push_back(
        {.tensor = {"ranked", {s.tokens, s.chosen}, ElementType::kInt64}, .computed_from = {"chosen"}});
    declaration.outputs[2].computed_from.emplace_back("ranked");
    declaration.backward_input.reads.emplace_back("ranked");
  }
  if (s.weighs_losses) {
    declaration.inputs.push_back(BatchTokens(s));
    declaration.backward_input.reads.emplace_back("tokens");
  }
  if (s.balances_globally) {
    // Known when the ranks have exchanged them (kBalance), which the choice does not wait for.
    declaration.outputs.push_back({.tensor = BalanceCounts(s), .written_behind = true});
    declaration.backward_input.reads.emplace_back("balance_counts");
  }
  if (s.biased) {
    declaration.states = {{"bias", {s.router.experts}, ElementType::kStatistics},
                          {"tokens", {s.router.experts}, ElementType::kFloat64}};
    declaration.state_updates = {{.state = "bias", .counter = "tokens"}};
    declaration.forward.state_reads = {"bias"};
    declaration.forward.state_adds = {"tokens"};
  }
  return declaration;
}

constexpr ParameterName kRouteNames[] = {
    {"norm", "post_attention_layernorm.weight"},
    {"router", "mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {"bias", "mlp.gate.e_score_correction_bias"},
    {"shared_gate", "mlp.shared_experts.gate_proj.weight"},
    {"shared_up", "mlp.shared_experts.up_proj.weight"},
    {"shared_down", "mlp.shared_experts.down_proj.weight"},
    {"shared_expert_gate", "mlp.shared_expert_gate.weight"},
};

// Where a router's load is to be even over the global batch: all ranks send each other how many of their
// tokens have each expert among their largest scores, and add them to those of the step's microbatches so
// far. balance_counts: what a microbatch would have of these by their mean, so that the mean of the
// microbatches' losses is that of all tokens. losses: balance and z of ops/router_losses.h. The counts have
// no gradient: that of the scores is the route node's. Where nothing is trained, the microbatches of one
// round stand for themselves.
NodeDeclaration DeclareBalance(const DecoderShapes& s) {
  const int64_t experts = s.router.experts;
  return {
      .inputs = {{.tensor = {"logits", {s.tokens, experts}, ElementType::kStatistics}, .from = "logits"},
                 {.tensor = BalanceCounts(s), .from = "balance_counts"}},
      .outputs = {{.tensor = {"losses", {2}, ElementType::kFloat64}, .loss = true}},
      .states = {{"seen", {experts}, ElementType::kFloat64}},
      .stream = kBalanceStream,
      .group = kDataGroup,
      .purpose = kBalancePurpose,
      .forward = {.reads = {"logits"},
                  .writes = {"balance_counts"},
                  .state_carries = {"seen"},
                  .scratch = {{"by_rank", {s.data_ranks, experts}, ElementType::kFloat64},
                              {"router_work",
                               {ops::RouterLossesWorkBytes(s.device, s.tokens, 1, experts)},
                               ElementType::kByte}},
                  .link_bytes = static_cast<double>(8 * s.data_ranks * experts)},
  };
}

}  // namespace

constinit const NodeKind kRoute = {.name = "route", .declare = DeclareRoute, .names = kRouteNames};

constinit const NodeKind kBalance = {.name = "balance", .declare = DeclareBalance};

}  // namespace tandem::model
