// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// The proof that every job's programs go through before it runs: formed, ordered, apart, agreed, meant.
// InvalidArgument is one line: the program and instruction, what is wrong with it, and what
// else is involved; it begins with the rule's name ("ordered: ...").
absl::Status CheckStage(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

}  // namespace tandem::schedules
