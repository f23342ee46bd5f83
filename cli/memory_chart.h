#pragma once

#include <vector>

#include "cli/styled_line.h"
#include "cli/timeline_chart.h"
#include "plan/memory.h"
#include "schedules_v1/timeline.h"

namespace tandem::cli {

// The arena's use over the step's time by category, stacked: weights, gradients, optimizer, slots and
// staging, which live as long as the job, then activations, their gradients, scratch. Each column shows the
// most that is in use there; the axis ends at the most of all. Bytes as asked for, so without alignment and
// gaps. Pure; no line is wider than shape.columns.
std::vector<StyledLine> MemoryChart(const plan::MemoryPlan& memory, const schedules_v1::Timeline& timeline,
                                    const ChartShape& shape);

}  // namespace tandem::cli
