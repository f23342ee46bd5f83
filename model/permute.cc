// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {

// The tokens, and the probabilities with which they count, in the order of the experts (ops/permute.h).
NodeDeclaration DeclarePermute(const DecoderShapes& s) {
  return {
      .kind = schedules::NodeKind::kPermute,
      .inputs = {{.tensor = {"normed", {s.tokens, s.hidden}, ElementType::kHidden}, .from = "normed"},
                 {.tensor = {"chosen", {s.tokens, s.chosen}, ElementType::kInt64}, .from = "chosen"},
                 {.tensor = {"probabilities", {s.tokens, s.chosen}, ElementType::kStatistics},
                  .from = "probabilities"}},
      .outputs = {{.tensor = {"rows", {s.rows, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .computed_from = {"row_of"}},
                  {.tensor = {"row_probabilities", {s.rows, 1}, ElementType::kStatistics},
                   .gradient = true,
                   .computed_from = {"row_of"}},
                  {.tensor = {"row_of", {s.rows}, ElementType::kInt64}, .computed_from = {"counts"}},
                  {.tensor = {"counts", {s.router.experts}, ElementType::kInt64},
                   .computed_from = {"row_of"}}},
      .forward = {.reads = {"normed", "chosen", "probabilities"},
                  .writes = {"rows", "row_probabilities", "row_of", "counts"}},
      .backward = {.reads = {"row_of"},
                   .gradient_reads = {"rows", "row_probabilities"},
                   .gradient_writes = {"normed", "probabilities"}},
      .recomputes = true,
  };
}

}  // namespace tandem::model
