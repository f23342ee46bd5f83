// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/check/run_clocks.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 2: any two accesses of a part of a buffer, one of them not a read, are ordered by streams and waits,
// within a run and from run to run. Sizes on the host are read by the issuing thread, so it must have waited
// for them before it issues a reader.
//
// Runs further apart than one are ordered by the executor (run_clocks.h), so it is enough to take a run of
// `program` after a former run of any program of the stage: everything that this former run may have accessed
// is there before the first instruction. A ring's elements change places from run to run. This holds for
// three runs in a row and for any number, whatever the programs.
//
// Requires programs that are formed.
absl::Status CheckOrdered(const Outline& outline, const Program& program, const RunClocks& clocks,
                          absl::Span<const Program* const> stage);

}  // namespace tandem::schedules
