// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// hidden = x + what its experts made of each token, the shared ones included. Where ranks share experts, each
// rank that has some of a token's returns a sum.
NodeDeclaration DeclareFinish(const DecoderShapes& s) {
  NodeDeclaration declaration{
      .place = schedules::Place::kAfter,
      .inputs = {HiddenState("x", s),
                 {.tensor = {"made", {s.sent_rows(), s.hidden}, ElementType::kHidden},
                  .from = s.expert_ranks > 1 ? "returned" : "made"}},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .forward = {.reads = {"x", "made"}, .writes = {"hidden"}},
      .backward_input = {.gradient_reads = {"hidden"}, .gradient_writes = {"x", "made"}},
      .recomputes = true,
  };
  if (s.expert_ranks > 1) {
    declaration.inputs.push_back(ChosenExperts(s));
    for (PassSpec* pass : {&declaration.forward, &declaration.backward_input}) {
      pass->reads.emplace_back("chosen");
      pass->scratch = SendsScratch(s);
    }
    declaration.recomputes = false;  // what the ranks returned is not kept
  }
  if (s.shared_inner > 0) {
    declaration.inputs.push_back(
        {.tensor = {"shared", {s.tokens, s.hidden}, ElementType::kHidden}, .from = "shared"});
    declaration.forward.reads.emplace_back("shared");
    declaration.backward_input.gradient_writes.emplace_back("shared");
  }
  return declaration;
}

}  // namespace

constinit const NodeKind kFinish = {.name = "finish", .declare = DeclareFinish};

}  // namespace tandem::model
