// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 4, within one stage: the ranks of the stage agree.
//
// The ranks run the same text, so one represents all (together.h). The k-th collective of a communicator is
// the same instruction on each rank, because one stream issues all of them (rule 1); therefore kind and bytes
// agree. Once all ranks have ended what that instruction waits for, all of them start it. A stage alone
// always gets to the end, because waits point to lower positions (rule 1), so the lowest instruction that has
// not ended can run.
//
// This function checks what that argument needs: the ranks of each communicator are exactly the group that
// its unit or node is placed on.
absl::Status CheckAgreed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

}  // namespace tandem::schedules
