// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "model/node_kinds.h"

namespace tandem::model {

// Communication only: the rows of permute.cc to the ranks that have their experts. What is received lies in
// the order of the ranks that it came from.
NodeDeclaration DeclareDispatch(const DecoderShapes& s) {
  const TensorSpec tokens{"sent", {s.seen, s.hidden}, ElementType::kHidden};
  const TensorSpec slots{"sent_slots", {s.seen, s.slots}, ElementType::kInt64};
  const TensorSpec probabilities{"sent_probabilities", {s.seen, s.slots}, ElementType::kStatistics};
  const auto received = [&s](TensorSpec spec, const char* name, bool gradient) {
    spec.name = name;
    return OutputSpec{.tensor = std::move(spec),
                      .gradient = gradient,
                      .kind = schedules::ValueKind::kAllToAll,
                      .fill = s.fill};
  };
  const double rows = s.fill * static_cast<double>(s.seen);
  const double gradient_bytes =
      rows * static_cast<double>(s.hidden * s.compute_bytes + s.slots * s.statistics_bytes);
  NodeDeclaration declaration{
      .kind = schedules::NodeKind::kDispatch,
      .inputs = {{.tensor = tokens, .from = "sent"},
                 {.tensor = slots, .from = "sent_slots"},
                 {.tensor = probabilities, .from = "sent_probabilities"}},
      .outputs = {received(tokens, "received", true), received(slots, "received_slots", false),
                  received(probabilities, "received_probabilities", true)},
      .stream = kDispatchStream,
      .group = kExpertGroup,
      .purpose = kDispatchPurpose,
      .forward = {.reads = {"sent", "sent_slots", "sent_probabilities"},
                  .writes = {"received", "received_slots", "received_probabilities"},
                  .link_bytes = gradient_bytes + rows * static_cast<double>(8 * s.slots)},
      .backward = {.gradient_reads = {"received", "received_probabilities"},
                   .gradient_writes = {"sent", "sent_probabilities"},
                   .link_bytes = gradient_bytes},
  };
  if (s.exact_chunks) {
    ReadCounts(s, declaration);
  }
  return declaration;
}

}  // namespace tandem::model
