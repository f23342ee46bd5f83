// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {

// hidden = x + the sum of what its experts made of each token.
NodeDeclaration DeclareFinish(const DecoderShapes& s) {
  return {
      .kind = schedules::NodeKind::kFinish,
      .inputs = {HiddenState("x", s),
                 {.tensor = {"made", {s.rows, s.hidden}, ElementType::kHidden}, .from = "made"},
                 {.tensor = {"row_of", {s.rows}, ElementType::kInt64}, .from = "row_of"}},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .forward = {.reads = {"x", "made", "row_of"}, .writes = {"hidden"}},
      .backward = {.reads = {"row_of"}, .gradient_reads = {"hidden"}, .gradient_writes = {"x", "made"}},
      .recomputes = true,
  };
}

}  // namespace tandem::model
