// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/program/outline.h"
#include "schedules/program/program.h"
#include "schedules/simulate/memory_curve.h"
#include "schedules/simulate/timeline.h"

namespace tandem::schedules {

// One run of a program in a trace. The pointers must stay valid during the call.
struct TraceRun {
  const Program* program = nullptr;
  const Timeline* timeline = nullptr;
  int64_t offset_ns = 0;                // from the trace's start to the run's start
  const MemoryCurve* memory = nullptr;  // null: the trace has no counters of memory
};

// Writes timelines in Chrome's trace event format as JSON, which Perfetto (ui.perfetto.dev) opens. The trace
// has a process for each rank, a track for each stream, and an event for each instruction that ran something.
// An event has the instruction's index and microbatch, the instruction that determined its start (BoundBy),
// and the bytes that its memory waits free. A counter shows the bytes in use by kind. Times are microseconds
// from the trace's start, the earliest moment in it.
std::string TraceToJson(const Outline& outline, const std::vector<TraceRun>& runs);

}  // namespace tandem::schedules
