// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/check/run_clocks.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 2: two accesses of a part of a buffer are ordered by streams and waits, within a run and from run to
// run, unless both are reads. Split sizes on the host are read by the issuing thread, so it must have waited
// for them before it issues a reader.
//
// The executor orders runs that are further apart than one (run_clocks.h). It is therefore enough to place a
// run of `program` behind a former run of any program of the stage, and to take everything that this former
// run may have accessed as accessed before the first instruction. The elements of a ring change places from
// run to run. Together this covers any number of runs in a row, whatever their programs.
//
// Requires programs that are formed.
absl::Status CheckOrdered(const Outline& outline, const Program& program, const RunClocks& clocks,
                          absl::Span<const Program* const> stage);

}  // namespace tandem::schedules
