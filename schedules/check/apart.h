// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "schedules/check/run_clocks.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 3: buffers that share bytes are ordered: every access of one has ended before any of the other starts.
// A persistent buffer or ring shares none.
//
// It is enough to compare, byte by byte, each buffer with the one that had the byte before it: if all of A is
// before all of B and all of B before all of C, then A is before C. From run to run nothing is left to
// compare: locals are touched by no stream that copies to or from the host (rule 1), and all other streams
// start after the former run's.
//
// Requires programs that are formed.
absl::Status CheckApart(const Outline& outline, const Program& program, const RunClocks& clocks);

}  // namespace tandem::schedules
