// SPDX-License-Identifier: Apache-2.0
#include "model/node_kinds.h"
#include "ops/sparse_work.h"

namespace tandem::model {
namespace {

// Where a router's load is to be even over the global batch: all ranks send each other how many of their
// tokens have each expert among their largest scores, and add them to those of the step's microbatches so
// far. balance_counts: what a microbatch would have of these by their mean, so that the mean of the
// microbatches' losses is that of all tokens. losses: balance and z of ops/router_losses.h. The counts have
// no gradient: that of the scores is the route node's. Where nothing is trained, the microbatches of one
// round stand for themselves.
NodeDeclaration DeclareBalance(const DecoderShapes& s) {
  const int64_t experts = s.router.experts;
  return {
      .inputs = {{.tensor = {"logits", {s.tokens, experts}, ElementType::kStatistics}, .from = "logits"},
                 {.tensor = BalanceCounts(s), .from = "balance_counts"}},
      .outputs = {{.tensor = {"losses", {2}, ElementType::kFloat64}, .loss = true}},
      .states = {{"seen", {experts}, ElementType::kFloat64}},
      .stream = kBalanceStream,
      .group = kDataGroup,
      .purpose = kBalancePurpose,
      .forward = {.reads = {"logits"},
                  .writes = {"balance_counts", "losses"},
                  .state_carries = {"seen"},
                  .scratch = {{"by_rank", {s.data_ranks, experts}, ElementType::kFloat64},
                              {"router_work",
                               {ops::RouterLossesWorkBytes(s.device, s.tokens, 1, experts)},
                               ElementType::kByte}},
                  .link_bytes = static_cast<double>(8 * s.data_ranks * experts)},
  };
}

}  // namespace

constinit const NodeKind kBalance = {.name = "balance", .declare = DeclareBalance};

}  // namespace tandem::model
