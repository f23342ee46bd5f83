// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "model/node_kinds.h"
#include "ops/linear_work.h"

namespace tandem::model {

// normed = norm(x); logits = router · normed; chosen and probabilities of ops/router.h. Logits are computed
// in the type of statistics, from copies of both operands where that is another. The backward recomputes the
// norm, and adds the gradients of the router's own losses. report: model/router_report.h.
NodeDeclaration DeclareRoute(const DecoderShapes& s) {
  const double flops = s.ProductFlops(s.hidden, s.router.experts);
  const TensorSpec products{
      "products", {ops::LinearWorkBytes(s.device, s.compute_bytes)}, ElementType::kByte};
  std::vector<TensorSpec> forward_scratch = {products};
  std::vector<TensorSpec> backward_scratch = {
      {"normed", {s.tokens, s.hidden}},
      {"grad_normed", {s.tokens, s.hidden}},
      {"grad_logits", {s.tokens, s.router.experts}, ElementType::kStatistics},
      NormWork(s),
      products};
  if (s.widens) {
    const TensorSpec wide{"wide", {s.tokens, s.hidden}, ElementType::kStatistics};
    const TensorSpec wide_router{"wide_router", {s.router.experts, s.hidden}, ElementType::kStatistics};
    forward_scratch.insert(forward_scratch.end(), {wide, wide_router});
    backward_scratch.insert(backward_scratch.end(), {wide, wide_router});
  }
  return {
      .kind = schedules::NodeKind::kRoute,
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
      .parts =
          {{.name = "router",
            .parameters =
                {{.name = "norm", .shape = {s.hidden}, .init = Init::kOnes, .gradient_is_statistics = true},
                 {.name = "router", .shape = {s.router.experts, s.hidden}, .gradient_is_statistics = true}}}},
      .forward = {.reads = {"x"},
                  .writes = {"normed", "logits", "chosen", "probabilities", "report"},
                  .parameters = true,
                  .scratch = std::move(forward_scratch),
                  .flops = flops},
      .backward = {.reads = {"x", "logits", "chosen"},
                   .gradient_reads = {"normed", "probabilities"},
                   .gradient_writes = {"x"},
                   .parameters = true,
                   .parameter_gradients = true,
                   .scratch = std::move(backward_scratch),
                   .flops = 2 * flops},
      .recomputes = true,
  };
}

}  // namespace tandem::model
