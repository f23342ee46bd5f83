// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {

// Communication only: how many rows each rank sends to each, known to all before the first row travels. On a
// stream of its own, so that it does not wait behind the rows of another microbatch.
NodeDeclaration DeclareSizes(const DecoderShapes& s) {
  return {
      .kind = schedules::NodeKind::kSizes,
      .inputs = {{.tensor = {"sent_counts", {s.expert_ranks}, ElementType::kInt64}, .from = "sent_counts"}},
      .outputs = {{.tensor = {"counts", {s.expert_ranks, s.expert_ranks}, ElementType::kInt64}}},
      .stream = kSizesStream,
      .group = kExpertGroup,
      .purpose = kSizesPurpose,
      .forward = {.reads = {"sent_counts"},
                  .writes = {"counts"},
                  .link_bytes = static_cast<double>(8 * s.expert_ranks * s.expert_ranks)},
  };
}

}  // namespace tandem::model
