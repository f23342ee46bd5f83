// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cli/terminal/styled_line.h"
#include "schedules/program/program.h"
#include "schedules/simulate/timeline.h"

namespace tandem::cli {

// Columns of a chart beside its bars: for labels at the left, and for a share ("  98 %") at the right.
inline constexpr int kChartLabel = 15;
inline constexpr int kChartMargin = 7;
inline constexpr int kMinChartColumns = 10;  // with fewer, nothing is drawn

// Draws a timeline: a row for each stream, over the time of a step, with the share of it in which the stream
// is busy. Below them a row shows where communication is exposed, and a row the stream of the critical path;
// then the axis and what the marks mean. Each column shows what its stream did the longest in that time.
// Pure; no line is wider than width.
std::vector<StyledLine> TimelineChart(const schedules::Program& program, const schedules::Timeline& timeline,
                                      int width, bool unicode);

// Draws "0 ... 12.3 ms ... 24.6 ms" below the `columns` columns of a step, which begin at column `left`.
StyledLine TimeAxis(int64_t step_ns, int left, int columns, bool unicode);

}  // namespace tandem::cli
