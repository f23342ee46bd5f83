// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Rule 4: all ranks, each executing its program serially in host issue order, with collectives, sends and
// host waits at which they meet, get to the end. Streams run ahead of that order, never behind it: whatever
// is not finished, the instruction that is lowest in the order in which the serial ranks finish is ready, and
// so some rank goes on. (That a ready collective can start on a device is for the trainer to ensure.)
//
// Ranks of one stage run one text and are represented by one: the k-th collective of a communicator is the
// same instruction on each of them, so it agrees in kind and bytes, and if all of them have finished what is
// below an instruction they all arrive at it. What this needs is checked of every stage: waits point down
// (rule 1), and the ranks that meet are exactly the group that the unit or node is placed on.
absl::Status CheckAgreed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

// The stages of a pipeline, executed together: sends meet receives of the same value, microbatch, bytes and
// communicator, and gradient norms meet on all stages. Requires that CheckAgreed has passed for each of them.
absl::Status CheckStagesAgree(absl::Span<const Outline> outlines, absl::Span<const StagePrograms> stages);

}  // namespace tandem::schedules
