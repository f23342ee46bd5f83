// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "model/node_kinds.h"

namespace tandem::model {
namespace {

// Communicates only: sends the rows that permute has gathered to the ranks that have their experts. Received
// rows are in the order of their senders.
NodeDeclaration DeclareDispatch(const DecoderShapes& s) {
  const TensorSpec tokens{"sent", {s.sent_rows(), s.hidden}, ElementType::kHidden};
  const TensorSpec slots{"sent_slots", {s.sent_rows(), s.slots}, ElementType::kInt64};
  const TensorSpec probabilities{"sent_probabilities", {s.sent_rows(), s.slots}, ElementType::kStatistics};
  const auto received = [&s](TensorSpec spec, const char* name, bool gradient) {
    spec.name = name;
    spec.shape[0] = s.seen;
    return OutputSpec{.tensor = std::move(spec),
                      .gradient = gradient,
                      .kind = schedules::ValueKind::kAllToAll,
                      .fill = s.FillOf(s.seen)};
  };
  const double rows = s.fill * static_cast<double>(s.all_rows());
  const double gradient_bytes =
      rows * static_cast<double>(s.hidden * s.compute_bytes + s.slots * s.statistics_bytes);
  NodeDeclaration declaration{
      .place = schedules::Place::kDispatch,
      .inputs = {{.tensor = tokens, .from = "sent"},
                 {.tensor = slots, .from = "sent_slots"},
                 {.tensor = probabilities, .from = "sent_probabilities"}},
      .outputs = {received(tokens, "received", true), received(slots, "received_slots", false),
                  received(probabilities, "received_probabilities", true)},
      .stream = kDispatchStream,
      .group = kExpertGroup,
      .purpose = kDispatchPurpose,
      .forward = {.reads = {"sent", "sent_slots", "sent_probabilities"},
                  .link_bytes = gradient_bytes + rows * static_cast<double>(8 * s.slots)},
      .backward_input = {.gradient_reads = {"received", "received_probabilities"},
                         .gradient_writes = {"sent", "sent_probabilities"},
                         .link_bytes = gradient_bytes},
  };
  if (s.exact_chunks) {
    ReadCounts(s, declaration);
  }
  return declaration;
}

// Communicates only: how many rows each rank sends to each other; all ranks know it before the first row is
// sent. It has a stream of its own, so that it does not wait for the rows of another microbatch.
NodeDeclaration DeclareSizes(const DecoderShapes& s) {
  const TensorSpec counts = ExchangedCounts(s);
  NodeDeclaration declaration{
      .inputs = {{.tensor = {"sent_counts", {s.expert_ranks}, ElementType::kInt64}, .from = "sent_counts"}},
      .outputs = {{.tensor = counts}},
      .stream = kSizesStream,
      .group = kExpertGroup,
      .purpose = kSizesPurpose,
      .forward = {.reads = {"sent_counts"},
                  .link_bytes = static_cast<double>(8 * s.expert_ranks * s.expert_ranks)},
  };
  if (counts.on_host) {
    declaration.outputs[0].kind = schedules::ValueKind::kHost;
    declaration.forward.scratch = {{"gathered", counts.shape, counts.type}};
  }
  return declaration;
}

// Communicates only: returns what a rank's experts computed for each row to the row's sender, in the places
// from which it was sent.
NodeDeclaration DeclareCombine(const DecoderShapes& s) {
  const double bytes = s.fill * static_cast<double>(s.all_rows() * s.hidden * s.compute_bytes);
  NodeDeclaration declaration{
      .place = schedules::Place::kCombine,
      .inputs = {{.tensor = {"made", {s.seen, s.hidden}, ElementType::kHidden}, .from = "made"}},
      .outputs = {{.tensor = {"returned", {s.sent_rows(), s.hidden}, ElementType::kHidden},
                   .gradient = true,
                   .kind = schedules::ValueKind::kAllToAll,
                   .fill = s.FillOf(s.sent_rows())}},
      .stream = kDispatchStream,
      .group = kExpertGroup,
      .purpose = kDispatchPurpose,
      .forward = {.reads = {"made"}, .link_bytes = bytes},
      .backward_input = {.gradient_reads = {"returned"}, .gradient_writes = {"made"}, .link_bytes = bytes},
  };
  if (s.exact_chunks) {
    ReadCounts(s, declaration);
  }
  return declaration;
}

// A token is sent once to each rank that has experts which it chose, with their numbers on that rank and
// their probabilities (ops/sends.h). Each rank gets a chunk, in rank order, with room for every token; or,
// if chunks are exact, only as many rows as there are, with their number for each rank.
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
      .forward = {.reads = {"normed", "chosen", "probabilities"}, .scratch = SendsScratch(s)},
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
    declaration.forward.scratch.pop_back();
  }
  return declaration;
}

// hidden = x + the experts' results for each token, including the shared expert's. If ranks share experts,
// each rank returns the sum over its experts of a token.
NodeDeclaration DeclareFinish(const DecoderShapes& s) {
  NodeDeclaration declaration{
      .place = schedules::Place::kAfter,
      .inputs = {HiddenState("x", s),
                 {.tensor = {"made", {s.sent_rows(), s.hidden}, ElementType::kHidden},
                  .from = s.expert_ranks > 1 ? "returned" : "made"}},
      .outputs = {{.tensor = {"hidden", {s.tokens, s.hidden}, ElementType::kHidden}, .gradient = true}},
      .forward = {.reads = {"x", "made"}},
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

constinit const NodeKind kDispatch = {.name = "dispatch", .declare = DeclareDispatch};
constinit const NodeKind kSizes = {.name = "sizes", .declare = DeclareSizes};
constinit const NodeKind kCombine = {.name = "combine", .declare = DeclareCombine};

constinit const NodeKind kPermute = {.name = "permute", .declare = DeclarePermute};

constinit const NodeKind kFinish = {.name = "finish", .declare = DeclareFinish};

}  // namespace tandem::model
