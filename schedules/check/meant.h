// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 5: a program means the reference step (reference.h). It is executed in issue order on symbols (rule 2
// makes all orders equal); in the end every persistent buffer, every ring's element of this run, what was
// reported, and what was sent to other stages are the expressions of the reference. Locals start as distinct
// garbage; what the former run left is not assumed to be anything, so this holds for every run of a job.
//
// `train` is held to Update() and then Step(), `update` to Update(), `begin` to Step(): so train means update
// and then begin, given the same inputs from the host.
//
// Requires programs that are formed. The line says where expressions differ first: "meant: train: the
// contribution of layers.3.mlp of microbatch 1 is missing from the gradient of layers.3".
absl::Status CheckMeant(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

}  // namespace tandem::schedules
