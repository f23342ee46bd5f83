// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cli/plan/timeline_chart.h"
#include "cli/terminal/styled_line.h"
#include "schedules/simulate/memory_curve.h"

namespace tandem::cli {

// The memory in use over the step's time by kind, stacked: weights, gradients and optimizer state, which live
// as long as the job, then gathered parameters, contributions, activations, their gradients, scratch. Each
// column shows the most that is in use there. The arena is the line above: its top is the axis's end. Pure;
// no line is wider than shape.columns.
std::vector<StyledLine> MemoryChart(const schedules::MemoryCurve& curve, int64_t arena_bytes, int64_t step_ns,
                                    const ChartShape& shape);

}  // namespace tandem::cli
