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

// Everything that `worker` must run in this state, and the ended attempts that it may forget. An attempt
// that is stopping, unless it has succeeded, is listed as STOP_NOW if the worker has reported it. If not, it
// is left out: a worker stops every attempt that is listed neither as assigned nor as unknown to the store.
// The caller fills in `revision`.
v1::Assignments AssignmentsFor(const State& state, const std::string& worker);

// Whether the assignments of the worker may change when this report is observed: it is the first report on
// its attempt, or it says that the attempt has ended, so that the worker may forget it. Call before Observe.
bool MayChangeAssignments(const State& state, const AttemptReport& report);

// Records that the worker was asked to forget the attempts in `sent.forget`. If that message is lost, the
// worker lists them again when it reconnects.
void MarkForgotten(const v1::Assignments& sent, const std::string& worker, State& state);

}  // namespace tandem::controller
