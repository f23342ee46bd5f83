// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// The proof that every job's programs pass before they run: they are formed, ordered, apart, graphed, agreed,
// and meant. A violation is InvalidArgument with one line, which begins with the rule's name ("ordered: ...")
// and gives the program, the instruction, what is wrong, and what else is involved. rules.h has the rules.

// Checks a job of one stage.
absl::Status CheckStage(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

// Checks a job of several stages: each stage alone, and then all together (rules 4 and 5 of rules.h).
// `options` belong to the undivided outline; `programs` are by stage.
absl::Status CheckStages(const Outline& undivided, const BuildOptions& options,
                         absl::Span<const Stage> stages, absl::Span<const StagePrograms> programs);

// Checks what can be proven of one stage without the others: all rules except rule 5 (meant) and, of rule 4,
// that the stages together get to the end.
absl::Status CheckAlone(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

}  // namespace tandem::schedules
