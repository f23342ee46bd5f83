// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Instructions that a stream may hold that have not ended when the next one is issued: the issuing thread
// waits for the oldest of them. A stream of a device holds as many at least (trainer/cuda_backend.cc).
inline constexpr int kAhead = 8;

// Streams of a program. A device runs as many beside each other (trainer/tandem_trainer_cuda_main.cc): of two
// that share a queue, one that waits for a peer would hold the other.
inline constexpr int kMostStreams = 32;

// Communicators of a rank. The page that a rank shares with its worker counts the collectives of as many
// (link/shared_page.h), and on a GPU each takes some 232 MiB (schedules/simulate/device_profile.cc).
inline constexpr int kMostCommunicators = 24;

// An instruction of a stage that has ended.
struct Ended {
  int stage = -1;
  int instruction = -1;
};

// Rule 4: the ranks of all stages, executed together, get to the end. A rank is its issuing thread and a
// queue a stream. The thread takes the instructions in order. It stops at a host wait until what that waits
// for has ended, and at an instruction whose stream holds kAhead that have not ended. The head of a queue
// starts when what it waits for has ended. A send ends with its receive, a collective with its last member,
// all else by itself.
//
// One execution decides all. What is issued and what has ended only grows; and the thread can go on, a head
// can start, and what has started can end, because of what has ended. So what can go on stays able to until
// it does: two such steps can be taken in either order and lead to the same, and executions that go on as
// long as they can all end alike. (That a collective that has started can go on on a device is for the
// trainer to ensure.)
//
// Sends meet receives of the same value, microbatch, bytes and communicator, and gradient norms meet on all
// stages. Requires that rule 1 and CheckAgreed have passed for each of them. Returns the instructions but
// for host waits in an order in which they can end: a send directly before its receive, and the norms behind
// each other.
absl::StatusOr<std::vector<Ended>> RunTogether(absl::Span<const Outline* const> outlines,
                                               absl::Span<const Program* const> programs);

}  // namespace tandem::schedules
