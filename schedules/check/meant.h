// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// Rule 5: the programs of all stages mean the reference step of the undivided outline (reference.h). They are
// executed on symbols, several stages in an order of rule 4, one in issue order (rule 2 makes all orders
// equal); a receive yields what its send read. In the end every persistent buffer, every ring's element of
// this run and what was reported, of every stage, are the expressions of the reference. Locals start as
// distinct garbage; what the former run left is not assumed to be anything, so this holds for every run of a
// job.
//
// `train` is held to Update() and then Step(), `update` to Update(), `begin` to Step(): so train means update
// and then begin, given the same inputs from the host.
//
// options: of the undivided outline; its sizes are not read. programs: by stage. Requires a division
// (division.h) and programs that are formed. The line says where expressions differ first: "meant: train: the
// contribution of layers.3.mlp of microbatch 1 is missing from the gradient of layers.3"; of several stages,
// it names the stage.
absl::Status CheckMeant(const Outline& undivided, const BuildOptions& options, absl::Span<const Stage> stages,
                        absl::Span<const StagePrograms* const> programs);

// Checks a job of one stage.
absl::Status CheckMeant(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

}  // namespace tandem::schedules
