// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "schedules/program/build_options.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 6: what a captured graph does when it is replayed is what its segment's instructions would do. Each
// segment is a run of instructions that follow each other in issue order and on one stream: passes, of one
// microbatch, of nodes that BuildOptions::replayed names. A graph knows the addresses that it was captured
// with alone, and starts and ends as a whole, so
//
//   none has an operand in a ring, which is elsewhere in the next run;
//   none communicates, nor touches what the host may look at or change at any time;
//   only the first waits, and of those that wait for one, all wait for the last.
//
// Other buffers have one address in all runs (rule 1), so that with the same passes and addresses a graph
// serves a segment whenever it runs. Programs without gradients have no segments. Requires a program that is
// formed.
absl::Status CheckGraphed(const Outline& outline, const BuildOptions& options, const Program& program);

}  // namespace tandem::schedules
