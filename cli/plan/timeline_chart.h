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

// Draws a timeline: a row for each stream, over the time of a step, with the share of the step in which the
// stream is busy. Below them, one row shows where communication is exposed, and one the streams of the
// instructions on the critical path; then follow the axis and what the marks mean. A column of a stream's row
// shows the kind of work that took the stream the longest in the column's time. Pure; no line is wider than
// width.
std::vector<StyledLine> TimelineChart(const schedules::Program& program, const schedules::Timeline& timeline,
                                      int width, bool unicode);

// Draws "0 ... 12.3 ms ... 24.6 ms" below the `columns` columns of a step, which begin at column `left`.
StyledLine TimeAxis(int64_t step_ns, int left, int columns, bool unicode);

}  // namespace tandem::cli
