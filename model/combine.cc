// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {

// Communication only: what a rank's experts made of each row goes back to where the row came from, and lies
// there as it was sent.
NodeDeclaration DeclareCombine(const DecoderShapes& s) {
  const double bytes = s.fill * static_cast<double>(s.seen * s.hidden * s.compute_bytes);
  NodeDeclaration declaration{
      .kind = schedules::NodeKind::kCombine,
      .inputs = {{.tensor = {"made", {s.seen, s.hidden}, ElementType::kHidden}, .from = "made"}},
      .outputs = {{.tensor = {"returned", {s.seen, s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .kind = schedules::ValueKind::kAllToAll,
                   .fill = s.fill}},
      .stream = kDispatchStream,
      .group = kExpertGroup,
      .purpose = kDispatchPurpose,
      .forward = {.reads = {"made"}, .writes = {"returned"}, .link_bytes = bytes},
      .backward = {.gradient_reads = {"returned"}, .gradient_writes = {"made"}, .link_bytes = bytes},
  };
  if (s.exact_chunks) {
    ReadCounts(s, declaration);
  }
  return declaration;
}

}  // namespace tandem::model
