// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::schedules {

// Sharding strategies (ZeRO-1, 2 and 3, HSDP, HFSDP): for each axis of the data parallel mesh, whether
// parameters, gradients and optimizer state are replicated or sharded. Each strategy is a row of one table
// (sharding_strategy.cc); no other code depends on its name.

enum class Placement : uint8_t {
  kReplicate,  // every rank of the axis has all of it
  kShard,      // each rank has its shard; parameters are gathered for every span of uses, gradients are
               // reduced every microbatch
  kPartial,    // gradients only: each rank keeps its own sum until one reduction after the last microbatch
};

struct AxisPlacement {
  Placement parameters = Placement::kShard;
  Placement gradients = Placement::kShard;
  Placement optimizer = Placement::kShard;  // if kReplicate, every rank updates all of it
  bool operator==(const AxisPlacement&) const = default;
};

struct Strategy {
  std::string name;  // "zero3"
  AxisPlacement inner;
  AxisPlacement outer;  // all kReplicate if there is no outer axis
  bool operator==(const Strategy&) const = default;
};

// replicate, zero1, zero2, zero3, hsdp, hfsdp.
const std::vector<Strategy>& Strategies();

// Returns NotFound for an unknown name, with the known ones in the message.
absl::StatusOr<Strategy> StrategyOf(absl::string_view name);

}  // namespace tandem::schedules
