// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// hidden = projection · [embedding_norm(rows of `embedded` that are `depth` tokens ahead); hidden_norm(x)]
// (depths.h). Nothing but x and `embedded` is kept: the backward normalises them again.
NodeDeclaration DeclareDepthInput(const DecoderShapes& s) {
  const bool trains_x = !s.config.depths.detached || s.depth > 1;
  const bool trains_embedded = !s.config.depths.detached;
  const double flops = s.ProductFlops(2 * s.hidden, s.hidden);
  NodeDeclaration declaration{
      .inputs = {HiddenState("x", s),
                 {.tensor = {"embedded", {s.tokens, s.hidden}, ElementType::kHidden},
                  .from = "embedding.hidden"}},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .parts = {{.name = "depth_input",
                 .parameters = {NormOver(s, "embedding_norm", s.hidden),
                                NormOver(s, "hidden_norm", s.hidden),
                                {.name = "projection", .shape = {s.hidden, 2 * s.hidden}}}}},
      .forward = {.reads = {"x", "embedded"},
                  .writes = {"hidden"},
                  .parameters = true,
                  .scratch = {{"normed", {s.tokens, s.hidden}},
                              {"both", {s.tokens, 2 * s.hidden}},
                              ProductsWork(s)},
                  .flops = flops,
                  .row_elements = s.Elements(8 * s.hidden)},
      .backward_input = {.reads = {"x", "embedded"},
                         .writes = {"both", "grad_embedding_norm", "grad_hidden_norm"},
                         .gradient_reads = {"hidden"},
                         .parameters = true,
                         .scratch = {{"normed", {s.tokens, s.hidden}},
                                     {"grad_normed", {s.tokens, s.hidden}},
                                     NormWork(s),
                                     ProductsWork(s)},
                         .flops = flops,
                         .row_elements = s.Elements(14 * s.hidden)},
      .intermediates = {{"both", {s.tokens, 2 * s.hidden}},
                        {"grad_embedding_norm", {s.hidden}, ElementType::kStatistics},
                        {"grad_hidden_norm", {s.hidden}, ElementType::kStatistics}},
      .backward_weight = PassSpec{.reads = {"both", "grad_embedding_norm", "grad_hidden_norm"},
                                  .gradient_reads = {"hidden"},
                                  .parameter_gradients = true,
                                  .scratch = {ProductsWork(s)},
                                  .flops = flops},
      .recomputes = true,
  };
  PassSpec& backward = declaration.backward_input;
  if (trains_x) {
    backward.gradient_writes.emplace_back("x");
  }
  if (trains_embedded) {
    backward.gradient_writes.emplace_back("embedded");
  } else {
    backward.scratch.push_back({"unread", {s.tokens, s.hidden}});  // a gradient that stops here
  }
  return declaration;
}

constexpr ParameterName kDepthInputNames[] = {
    {"embedding_norm", "enorm.weight"},
    {"hidden_norm", "hnorm.weight"},
    {"projection", "eh_proj.weight"},
};

}  // namespace

constinit const NodeKind kDepthInput = {
    .name = "depth_input", .declare = DeclareDepthInput, .names = kDepthInputNames};

}  // namespace tandem::model
