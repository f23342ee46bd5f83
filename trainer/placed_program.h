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

// A program with its calls, and its place among all programs of a rank: which of the rank's communicators,
// streams and graphs are its own.
struct PlacedProgram {
  // communicators: those of `uses`, in this order, which all programs have together. first: how many
  // instructions the programs before it have, as the shared page counts them. Streams and graphs are added
  // once the rank has them.
  PlacedProgram(const schedules::Program& program, const comm::Communicators& communicators,
                const std::vector<schedules::CommunicatorUse>& uses, SharedCalls& calls, int first);

  const std::vector<int> uses_of;  // by CommunicatorId, its place among all
  const BoundProgram program;
  const int first;
  std::vector<device::Stream*> streams;  // by StreamId
  std::vector<SegmentGraph*> graphs;     // by segment; null: it is not replayed
};

}  // namespace tandem::trainer
