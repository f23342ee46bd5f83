// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/core/decide.h"
#include "controller/core/state.h"
#include "tandem/v1/job.pb.h"
#include "tandem/v1/workers.pb.h"

namespace tandem::controller {

// The process groups of a resolved spec, in creation order. They are not stored but recomputed from the grid.
// InvalidArgument if the sizes do not fit together; jobspec refuses such a spec at submission.
absl::StatusOr<std::vector<v1::GroupList>> GroupsOf(const v1::JobSpec& resolved);

// Everything that `worker` must run in this state, and the ended attempts that it may forget. A stopping
// attempt is listed as STOP_NOW if the worker has reported it, and is left out otherwise (a worker stops
// whatever is not listed, but for attempts of which the store has nothing). The caller fills in `revision`.
v1::Assignments AssignmentsFor(const State& state, const std::string& worker);

// Whether the assignments of a worker may differ once this report is observed: one of an attempt that it had
// not reported, or of an end that it may forget. Call before Observe.
bool MayChangeAssignments(const State& state, const AttemptReport& report);

// Records that the worker was asked to forget these attempts. If the message is lost, the worker lists them
// again when it returns.
void MarkForgotten(const v1::Assignments& sent, const std::string& worker, State& state);

}  // namespace tandem::controller
