#pragma once

#include <vector>

#include "cli/styled_line.h"
#include "cli/timeline_chart.h"
#include "plan/memory.h"
#include "schedules/timeline.h"

namespace tandem::cli {

// The arena's use over the step's time, stacked: what lives as long as the job (weights, gradients,
// optimizer, slots, staging), activations, their gradients, scratch. Each column shows the most that is in
// use there. The axis ends at the most that the program uses. Pure; no line is wider than shape.columns.
std::vector<StyledLine> MemoryChart(const schedules::MemoryCurve& curve, const schedules::Timeline& timeline,
                                    const ChartShape& shape);

}  // namespace tandem::cli
