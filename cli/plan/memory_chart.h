// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cli/plan/timeline_chart.h"
#include "cli/terminal/styled_line.h"
#include "schedules/simulate/memory_curve.h"

namespace tandem::cli {

// Draws the memory in use over the time of a step as a stack of eight layers. From the bottom: weights,
// gradients, optimizer state (mostly in use for the whole job); then gathered parameters, contributions
// (gradients of microbatches that are not reduced yet), activations, activation gradients and scratch. Each
// column shows the largest stack of its time. The vertical axis ends at arena_bytes. Pure; no line is wider
// than width.
std::vector<StyledLine> MemoryChart(const schedules::MemoryCurve& curve, int64_t arena_bytes, int64_t step_ns,
                                    int width, bool unicode);

}  // namespace tandem::cli
