// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {

// Communication only: how many rows each rank sends to each, known to all before the first row travels. On a
// stream of its own, so that it does not wait behind the rows of another microbatch.
NodeDeclaration DeclareSizes(const DecoderShapes& s) {
  const TensorSpec counts = ExchangedCounts(s);
  NodeDeclaration declaration{
      .kind = schedules::NodeKind::kSizes,
      .inputs = {{.tensor = {"sent_counts", {s.expert_ranks}, ElementType::kInt64}, .from = "sent_counts"}},
      .outputs = {{.tensor = counts}},
      .stream = kSizesStream,
      .group = kExpertGroup,
      .purpose = kSizesPurpose,
      .forward = {.reads = {"sent_counts"},
                  .writes = {"counts"},
                  .link_bytes = static_cast<double>(8 * s.expert_ranks * s.expert_ranks)},
  };
  if (counts.on_host) {
    declaration.outputs[0].kind = schedules::ValueKind::kHost;
    declaration.forward.scratch = {{"gathered", counts.shape, counts.type}};
  }
  return declaration;
}

}  // namespace tandem::model
