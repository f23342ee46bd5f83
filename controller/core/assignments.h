// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/core/state.h"
#include "tandem/v1/job.pb.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::controller {

// The process groups of a resolved spec, in creation order. Not stored: recomputed from the grid.
// InvalidArgument where its sizes do not fit together; a submitted spec is refused for that (jobspec).
absl::StatusOr<std::vector<v1::GroupList>> GroupsOf(const v1::JobSpec& resolved);

// Everything that is wanted on `worker` in this state, and the ended attempts that it may forget. Attempts
// run; a stopping one is listed as STOP_NOW where the worker has spoken of it, and is unlisted where it has
// not (a worker stops what is not listed). `revision` is the caller's to fill in.
v1::Assignments AssignmentsFor(const State& state, const std::string& worker);

// The worker was asked to forget these; it lists them again when it returns, should the message be lost.
void MarkForgotten(const v1::Assignments& sent, const std::string& worker, State& state);

}  // namespace tandem::controller
