// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {

// hidden = x + what its experts made of each token.
NodeDeclaration DeclareFinish(const DecoderShapes& s) {
  return {
      .kind = schedules::NodeKind::kFinish,
      .inputs = {HiddenState("x", s),
                 {.tensor = {"made", {s.tokens, s.hidden}, ElementType::kHidden}, .from = "made"}},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .forward = {.reads = {"x", "made"}, .writes = {"hidden"}},
      .backward = {.gradient_reads = {"hidden"}, .gradient_writes = {"x", "made"}},
      .recomputes = true,
  };
}

}  // namespace tandem::model
