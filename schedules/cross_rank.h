#pragma once

#include "absl/status/status.h"
#include "schedules/outline.h"
#include "schedules/program.h"

namespace tandem::schedules {

// Proves that two ranks, running a and b, meet in every collective: the same collectives in the same order
// on each communicator, and no circle of waits over streams and communicators in which both stand still.
// InvalidArgument names the two instructions. Requires programs that CheckProgram accepts.
absl::Status CheckRanks(const Outline& outline, const Program& a, const Program& b);

}  // namespace tandem::schedules
