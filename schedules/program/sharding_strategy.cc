// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/sharding_strategy.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::schedules {
namespace {

constexpr Placement kReplicate = Placement::kReplicate;
constexpr Placement kShard = Placement::kShard;
constexpr Placement kPartial = Placement::kPartial;

// An axis of one rank.
constexpr AxisPlacement kNoAxis = {kReplicate, kReplicate, kReplicate};

}  // namespace

const std::vector<Strategy>& Strategies() {
  //                                     parameters, gradients, optimizer
  static const std::vector<Strategy>* const strategies = new std::vector<Strategy>{
      {"replicate", {kReplicate, kPartial, kReplicate}, kNoAxis},
      {"zero1", {kReplicate, kPartial, kShard}, kNoAxis},
      {"zero2", {kReplicate, kShard, kShard}, kNoAxis},
      {"zero3", {kShard, kShard, kShard}, kNoAxis},
      {"hsdp", {kShard, kShard, kShard}, {kReplicate, kPartial, kReplicate}},
      {"hfsdp", {kShard, kShard, kShard}, {kReplicate, kPartial, kShard}},
  };
  return *strategies;
}

absl::StatusOr<Strategy> StrategyOf(absl::string_view name) {
  for (const Strategy& strategy : Strategies()) {
    if (strategy.name == name) {
      return strategy;
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no strategy \"", name, "\"; there are ",
                   absl::StrJoin(Strategies(), ", ", [](std::string* out, const Strategy& strategy) {
                     absl::StrAppend(out, strategy.name);
                   })));
}

}  // namespace tandem::schedules
