// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// How many instructions a stream may hold that are issued but have not ended. If it holds this many, the
// issuing thread waits for the oldest before it issues the next one. A device's stream must hold at least as
// many (trainer/cuda_backend.cc).
inline constexpr int kAhead = 8;

// The largest number of streams that a program may have. A device must run as many beside each other
// (trainer/tandem_trainer_cuda_main.cc): if two streams shared a queue, one that waits for a peer would block
// the other.
inline constexpr int kMostStreams = 32;

// The largest number of communicators that a rank may have. The page that a rank shares with its worker has
// counters for so many (link/shared_page.h), and on a GPU each takes some 232 MiB
// (schedules/simulate/device_profile.cc).
inline constexpr int kMostCommunicators = 24;

// An instruction of a stage that has ended.
struct Ended {
  int stage = -1;
  int instruction = -1;
};

// Rule 4 for all stages: executed together, their ranks get to the end.
//
// A rank is modelled as its issuing thread and one queue for each stream. The thread takes the instructions
// in order. It stops at a host wait until everything that this waits for has ended, and at an instruction
// whose stream holds kAhead instructions that have not ended. The head of a queue starts when what it waits
// for has ended. A send ends with its receive, a collective with its last member, and everything else by
// itself.
//
// One execution decides for all. A step of it (the thread continues, a head starts, a started instruction
// ends) depends only on what has been issued and ended, and both only grow. A possible step therefore stays
// possible until it is taken, two possible steps can be taken in either order with the same result, and all
// executions that continue for as long as they can end in the same way. (The trainer must ensure that a
// collective which has started can continue on its device.)
//
// Sends meet receives of the same value, microbatch, bytes and communicator, and gradient norms meet on all
// stages. Requires that rule 1 and CheckAgreed have passed for each stage. Returns the instructions without
// host waits in an order in which they can end: each send directly before its receive, and the norms of all
// stages next to each other.
absl::StatusOr<std::vector<Ended>> RunTogether(absl::Span<const Outline* const> outlines,
                                               absl::Span<const Program* const> programs);

}  // namespace tandem::schedules
