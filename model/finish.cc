// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {

// hidden = x + what its experts made of each token, of which every rank that has some of them returns a sum.
NodeDeclaration DeclareFinish(const DecoderShapes& s) {
  NodeDeclaration declaration{
      .kind = schedules::NodeKind::kFinish,
      .inputs = {HiddenState("x", s),
                 {.tensor = {"made", {s.seen, s.hidden}, ElementType::kHidden},
                  .from = s.expert_ranks > 1 ? "returned" : "made"}},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .forward = {.reads = {"x", "made"}, .writes = {"hidden"}},
      .backward = {.gradient_reads = {"hidden"}, .gradient_writes = {"x", "made"}},
      .recomputes = true,
  };
  if (s.expert_ranks > 1) {
    declaration.inputs.push_back(ChosenExperts(s));
    for (PassSpec* pass : {&declaration.forward, &declaration.backward}) {
      pass->reads.emplace_back("chosen");
      pass->scratch = SendsScratch(s);
    }
    declaration.recomputes = false;  // what the ranks returned is not kept
  }
  return declaration;
}

}  // namespace tandem::model
