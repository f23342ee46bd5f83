// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cli/terminal/styled_line.h"
#include "schedules/program/program.h"
#include "schedules/simulate/timeline.h"

namespace tandem::cli {

// The frame of a chart: labels at the left, then the step's time, then what stands behind the bars ("  98
// %").
inline constexpr int kChartLabel = 15;
inline constexpr int kChartMargin = 7;
inline constexpr int kMinChartColumns = 10;  // with fewer, nothing is drawn

struct ChartShape {
  int columns = 100;
  bool unicode = true;
};

// A timeline as a row per stream over the step's time, with how busy each is; below them the columns in which
// communication is exposed and the stream that the critical path runs on, the axis, and what the marks mean.
// Each column shows what its stream did the longest there. Pure; no line is wider than shape.columns.
std::vector<StyledLine> TimelineChart(const schedules::Program& program, const schedules::Timeline& timeline,
                                      const ChartShape& shape);

// "0 ... 12.3 ms ... 24.6 ms" below `columns` columns of a step, which begin at column `left`.
StyledLine TimeAxis(int64_t step_ns, int left, int columns, bool unicode);

}  // namespace tandem::cli
