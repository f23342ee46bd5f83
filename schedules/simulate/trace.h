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

// One run of a program in a trace. What it points to outlives the call.
struct TraceRun {
  const Program* program = nullptr;
  const Timeline* timeline = nullptr;
  int64_t offset_ns = 0;                // of the run's start from the trace's
  const MemoryCurve* memory = nullptr;  // null: no counters
};

// Timelines in Chrome's trace event format, as JSON, which Perfetto (ui.perfetto.dev) opens: a process per
// rank, a track per stream, an event per instruction that ran something (with its index, microbatch, the
// instruction that its start was bound by, and the bytes that its memory waits free), and a counter of the
// bytes in use by kind. Times are microseconds from the trace's start, which is the earliest moment in it.
std::string TraceToJson(const Outline& outline, const std::vector<TraceRun>& runs);

}  // namespace tandem::schedules
