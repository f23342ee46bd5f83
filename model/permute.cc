// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// A token is sent once to each rank that has an expert which it chose, with the numbers of these there and
// their probabilities (ops/sends.h). A chunk for each rank, in rank order, which has room for every token;
// or, where chunks are exact, only what there is, and how much that is for each rank.
NodeDeclaration DeclarePermute(const DecoderShapes& s) {
  NodeDeclaration declaration{
      .inputs = {{.tensor = {"normed", {s.tokens, s.hidden}, ElementType::kHidden}, .from = "normed"},
                 ChosenExperts(s),
                 {.tensor = {"probabilities", {s.tokens, s.chosen}, ElementType::kStatistics},
                  .from = "probabilities"}},
      .outputs = {{.tensor = {"sent", {s.sent_rows(), s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .kind = schedules::ValueKind::kAllToAll},
                  {.tensor = {"sent_slots", {s.sent_rows(), s.slots}, ElementType::kInt64},
                   .kind = schedules::ValueKind::kAllToAll},
                  {.tensor = {"sent_probabilities", {s.sent_rows(), s.slots}, ElementType::kStatistics},
                   .gradient = true,
                   .kind = schedules::ValueKind::kAllToAll}},
      .forward = {.reads = {"normed", "chosen", "probabilities"},
                  .writes = {"sent", "sent_slots", "sent_probabilities"},
                  .scratch = SendsScratch(s)},
      .backward_input = {.reads = {"chosen"},
                         .gradient_reads = {"sent", "sent_probabilities"},
                         .gradient_writes = {"normed", "probabilities"},
                         .scratch = SendsScratch(s)},
  };
  for (OutputSpec& output : declaration.outputs) {
    output.fill = s.FillOf(s.sent_rows());
  }
  if (s.exact_chunks) {
    declaration.outputs.push_back({.tensor = {"sent_counts", {s.expert_ranks}, ElementType::kInt64}});
    declaration.forward.writes.emplace_back("sent_counts");
    declaration.forward.scratch.pop_back();
  }
  return declaration;
}

}  // namespace

constinit const NodeKind kPermute = {.name = "permute", .declare = DeclarePermute};

}  // namespace tandem::model
