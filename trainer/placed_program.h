// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "comm/communicators.h"
#include "device/stream.h"
#include "schedules/program/program.h"
#include "trainer/bound_program.h"
#include "trainer/segment_graph.h"
#include "trainer/shared_calls.h"

namespace tandem::trainer {

// A program with its calls, its communicators, streams and graphs among those of the rank, and its place
// among all programs of the rank.
struct PlacedProgram {
  // `communicators` are those of `uses`, in this order, and are shared by all programs. `first` is the number
  // of instructions in the programs before it, as the shared page counts them. Streams and graphs are added
  // once the rank has them.
  PlacedProgram(const schedules::Program& program, const comm::Communicators& communicators,
                const std::vector<schedules::CommunicatorUse>& uses, SharedCalls& calls, int first);

  const std::vector<int> uses_of;  // by CommunicatorId, its index among all
  const BoundProgram program;
  const int first;
  std::vector<device::Stream*> streams;  // by StreamId
  std::vector<SegmentGraph*> graphs;     // by segment; null if it is not replayed
};

}  // namespace tandem::trainer
