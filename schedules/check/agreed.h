// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 4 of one stage. Its ranks run one text and are represented by one (together.h): the k-th collective of
// a communicator, which one stream issues (rule 1), is the same instruction on each of them, so it agrees in
// kind and bytes, and if all of them have ended what it needs they all start it. Alone they get to the end,
// because waits point down (rule 1): of what has not ended, the lowest can go on. What this needs is checked
// of every stage: the ranks that meet are exactly the group that the unit or node is placed on.
absl::Status CheckAgreed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

}  // namespace tandem::schedules
