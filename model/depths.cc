// SPDX-License-Identifier: Apache-2.0
#include "model/depths.h"

#include "absl/strings/str_cat.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// hidden = projection · [embedding_norm(rows of `embedded` that are `depth` tokens ahead); hidden_norm(x)]
// (depths.h). Only x and `embedded` are kept; the backward normalises them again.
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
                  .parameters = true,
                  .scratch = {{"normed", {s.tokens, s.hidden}},
                              {"both", {s.tokens, 2 * s.hidden}},
                              ProductsWork(s)},
                  .flops = flops,
                  .row_elements = s.Elements(8 * s.hidden)},
      .backward_input = {.reads = {"x", "embedded"},
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
      .backward_weight = PassSpec{.gradient_reads = {"hidden"},
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

// hidden = norm(x).
NodeDeclaration DeclareNorm(const DecoderShapes& s, const char* part, schedules::Place place) {
  return {
      .place = place,
      .inputs = {HiddenState("x", s)},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .parts = {{.name = part, .parameters = {NormOver(s, "norm", s.hidden)}}},
      .forward = {.reads = {"x"}, .parameters = true, .row_elements = s.Elements(2 * s.hidden)},
      .backward_input = {.reads = {"x"},
                         .gradient_reads = {"hidden"},
                         .gradient_writes = {"x"},
                         .parameters = true,
                         .parameter_gradients = true,
                         .scratch = {NormWork(s)},
                         .row_elements = s.Elements(3 * s.hidden)},
      .recomputes = true,
  };
}

NodeDeclaration DeclareMainNorm(const DecoderShapes& s) {
  return DeclareNorm(s, "main_norm", schedules::Place::kBefore);
}
NodeDeclaration DeclareDepthNorm(const DecoderShapes& s) {
  return DeclareNorm(s, "depth_norm", schedules::Place::kAfter);
}

constexpr ParameterName kMainNormNames[] = {{"norm", "model.norm.weight"}};
constexpr ParameterName kDepthNormNames[] = {{"norm", "shared_head.norm.weight"}};

}  // namespace

std::string UnitOfDepth(int64_t depth) { return absl::StrCat("mtp.", depth - 1); }

InputSpec HiddenOfDepth(const char* name, int64_t depth, const DecoderShapes& shapes) {
  const std::string node = depth == 0 ? absl::StrCat(UnitOfDepth(1), ".", kMainNorm.name)
                                      : absl::StrCat(UnitOfDepth(depth), ".", kDepthNorm.name);
  InputSpec input = HiddenState(name, shapes);
  input.from = absl::StrCat(node, ".hidden");
  return input;
}

constinit const NodeKind kDepthInput = {
    .name = "depth_input", .declare = DeclareDepthInput, .names = kDepthInputNames};

constinit const NodeKind kMainNorm = {
    .name = "main_norm", .declare = DeclareMainNorm, .names = kMainNormNames, .of_model = true};
constinit const NodeKind kDepthNorm = {
    .name = "depth_norm", .declare = DeclareDepthNorm, .names = kDepthNormNames};

}  // namespace tandem::model
