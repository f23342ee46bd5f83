#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "schedules_v1/memory.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"
#include "schedules_v1/timeline.h"

namespace tandem::schedules_v1 {

// One run of a program in a trace. What it points to outlives the call.
struct TraceRun {
  const Program* program = nullptr;
  const Timeline* timeline = nullptr;
  int64_t offset_ns = 0;                // of the program's start from the trace's
  const MemoryCurve* memory = nullptr;  // null: no counters
  // Beside the curve, what lives as long as the job: category → bytes; empty: the curve's sum, as
  // "persistent".
  std::map<std::string, int64_t> persistent;
};

// Timelines in Chrome's trace event format, as JSON, which Perfetto (ui.perfetto.dev) opens: a process per
// rank, a track per stream, an event per instruction that ran something (with its index, microbatch and the
// instruction that its start was bound by), and a counter of the arena's bytes by category. Times are
// microseconds from the trace's start.
std::string TraceToJson(const Outline& outline, const std::vector<TraceRun>& runs);

}  // namespace tandem::schedules_v1
