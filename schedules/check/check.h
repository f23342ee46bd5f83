// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// The proof that every job's programs go through before it runs: formed, ordered, apart, graphed, agreed,
// meant. InvalidArgument is one line: the program and instruction, what is wrong with it, and what else is
// involved; it begins with the rule's name ("ordered: ...").

// Of a job of one stage.
absl::Status CheckStage(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

// Of a job of several: each of them alone, and then all together (rules 4 and 5). options: of the undivided
// outline. programs: by stage.
absl::Status CheckStages(const Outline& undivided, const BuildOptions& options,
                         absl::Span<const Stage> stages, absl::Span<const StagePrograms> programs);

// What is proven of a stage without the others: all but that it gets to the end beside them, and what it
// means.
absl::Status CheckAlone(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

}  // namespace tandem::schedules
