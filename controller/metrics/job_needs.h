// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "controller/core/state.h"
#include "tandem/v1/state.pb.h"

namespace tandem::controller {

// What the ranks of one attempt need, as they reported when they became ready (v1.Ready).
struct JobNeeds {
  int64_t arena_bytes = 0;                   // of the largest
  int64_t used_bytes = 0;                    // of the fullest device
  int64_t total_bytes = 0;                   // of the smallest device
  std::map<std::string, double> sent_bytes;  // in a step, of all ranks together, by what for; at most 16
};

// None until all ranks of the current attempt have reported it. The job may have ended since.
std::optional<JobNeeds> NeedsOf(const State& state, const v1::Job& job);

}  // namespace tandem::controller
