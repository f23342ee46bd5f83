// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "schedules/check/run_clocks.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 3: buffers that share bytes are ordered. All accesses of one end before any access of the other
// starts. A persistent buffer or ring shares no bytes.
//
// It is enough to compare, byte by byte, each buffer with the one that had the byte before it, because the
// relation is transitive: if all of A is before all of B, and all of B before all of C, then A is before C.
// Nothing needs to be compared between runs: streams that copy to or from the host do not touch locals (rule
// 1), and all other streams start after those of the former run.
//
// Requires programs that are formed.
absl::Status CheckApart(const Outline& outline, const Program& program, const RunClocks& clocks);

}  // namespace tandem::schedules
