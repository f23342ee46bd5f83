// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/timeline_chart.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/terminal/display_text.h"
#include "plan/quantity_text.h"

namespace tandem::cli {
namespace {

using schedules::Opcode;

enum Mark { kForward, kBackward, kOptimizer, kGather, kReduce, kOther, kNumMarks };

struct Glyph {
  const char* unicode;
  const char* ascii;
  const char* ascii_partly;
  Style style;
  const char* meaning;
};

constexpr Glyph kGlyphs[kNumMarks] = {
    {"█", "F", "f", Style::kBusy, "forward"},     {"▓", "B", "b", Style::kGood, "backward"},
    {"▒", "O", "o", Style::kStrong, "optimizer"}, {"█", "G", "g", Style::kBusy, "gather"},
    {"▓", "R", "r", Style::kGood, "reduce"},      {"▒", "X", "x", Style::kStrong, "other"},
};

Mark MarkOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kForward:
    case Opcode::kRecompute:
      return kForward;
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      return kBackward;
    case Opcode::kOptimizerStep:
      return kOptimizer;
    case Opcode::kUnshard:
    case Opcode::kUnshardOuter:
      return kGather;
    case Opcode::kReduceGradients:
    case Opcode::kReduceOuter:
    case Opcode::kAccumulate:
      return kReduce;
    default:
      return kOther;
  }
}

// Time of each mark in each column.
class Row {
 public:
  Row(int columns, int64_t step_ns) : width_(static_cast<double>(step_ns) / columns), cells_(columns) {}

  // Leaves out what is outside the step, as copies may be.
  void Add(Mark mark, int64_t start_ns, int64_t end_ns) {
    const double end = std::min(static_cast<double>(end_ns) / width_, static_cast<double>(cells_.size()));
    for (double at = std::max(0.0, static_cast<double>(start_ns) / width_); at < end;) {
      const int column = std::min(static_cast<int>(at), static_cast<int>(cells_.size()) - 1);
      const double until = std::min(end, static_cast<double>(column + 1));
      cells_[column][mark] += until - at;
      at = column + 1 == static_cast<int>(cells_.size()) ? end : std::max(until, column + 1.0);
    }
  }

  // Returns the share of a column in which something runs.
  double Busy(int column) const { return std::accumulate(cells_[column].begin(), cells_[column].end(), 0.0); }

  Mark Largest(int column) const {
    const auto& cell = cells_[column];
    return static_cast<Mark>(std::max_element(cell.begin(), cell.end()) - cell.begin());
  }

  int columns() const { return static_cast<int>(cells_.size()); }

 private:
  double width_;  // nanoseconds of a column
  std::vector<std::array<double, kNumMarks>> cells_;
};

StyledLine Bars(const Row& row, bool unicode) {
  StyledLine line;
  for (int column = 0; column < row.columns(); ++column) {
    const double busy = row.Busy(column);
    const Glyph& glyph = kGlyphs[row.Largest(column)];
    if (busy < 0.02) {
      line.Add(unicode ? "·" : ".", Style::kDim);
    } else if (busy < 0.5) {
      line.Add(unicode ? "░" : glyph.ascii_partly, glyph.style);
    } else {
      line.Add(unicode ? glyph.unicode : glyph.ascii, glyph.style);
    }
  }
  return line;
}

StyledLine Labelled(const std::string& label, const StyledLine& bars, const std::string& behind) {
  StyledLine line(PadRight(label, kChartLabel));
  line.Append(bars);
  line.Add(PadLeft(behind, kChartMargin));
  return line;
}

StyledLine Legend(const std::array<bool, kNumMarks>& used, bool unicode) {
  StyledLine line(std::string(kChartLabel, ' '));
  for (int mark = 0; mark < kNumMarks; ++mark) {
    if (used[mark]) {
      const Glyph& glyph = kGlyphs[mark];
      line.Add(unicode ? glyph.unicode : glyph.ascii, glyph.style)
          .Add(absl::StrCat(" ", glyph.meaning, "  "));
    }
  }
  return line.Add(unicode ? "░ less than half" : "small: less than half", Style::kDim);
}

}  // namespace

StyledLine TimeAxis(int64_t step_ns, int left, int columns, bool unicode) {
  const std::string end = plan::DurationText(step_ns);
  const std::string middle = plan::DurationText(step_ns / 2);
  StyledLine line(std::string(left, ' '));
  line.Add(unicode ? "└0 " : "|0 ", Style::kDim);
  const int middle_start = left + columns / 2 - 1;
  const int end_start = left + columns - static_cast<int>(end.size()) - 1;
  if (middle_start + static_cast<int>(middle.size()) + 2 < end_start && middle_start > line.width()) {
    line.PadTo(middle_start).Add(absl::StrCat(unicode ? "└" : "|", middle), Style::kDim);
  }
  if (end_start > line.width()) {
    line.PadTo(end_start).Add(absl::StrCat(end, unicode ? "┘" : "|"), Style::kDim);
  }
  return line;
}

std::vector<StyledLine> TimelineChart(const schedules::Program& program, const schedules::Timeline& timeline,
                                      int width, bool unicode) {
  const int64_t step_ns = schedules::StepNanoseconds(program, timeline);
  const int columns = width - kChartLabel - kChartMargin;
  if (step_ns <= 0 || columns < kMinChartColumns) {
    return {};
  }
  const size_t num_streams = program.streams.size();
  std::vector<Row> rows(num_streams, Row(columns, step_ns));
  std::vector<bool> streams(num_streams);
  std::array<bool, kNumMarks> marks{};
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const schedules::InstructionTime& time = timeline.instructions[i];
    if (time.end_ns > time.start_ns && time.end_ns > 0 && time.start_ns < step_ns) {
      const schedules::StreamId stream = program.instructions[i].stream;
      const Mark mark = MarkOf(program.instructions[i].opcode);
      rows[stream].Add(mark, time.start_ns, time.end_ns);
      streams[stream] = true;
      marks[mark] = true;
    }
  }

  std::vector<StyledLine> lines;
  const auto busy = schedules::BusyNanoseconds(program, timeline);
  const auto share = [step_ns](int64_t part) {
    return plan::ShareText(static_cast<double>(part), static_cast<double>(step_ns));
  };
  for (size_t s = 0; s < num_streams; ++s) {
    if (streams[s]) {
      lines.push_back(Labelled(program.streams[s].name, Bars(rows[s], unicode), share(busy[s])));
    }
  }

  Row exposed(columns, step_ns);
  int64_t exposed_ns = 0;
  for (const auto& [start, end] : schedules::ExposedTimes(program, timeline)) {
    exposed.Add(kOther, start, end);
    exposed_ns += end - start;
  }
  bool visible = false;
  StyledLine bars;
  for (int column = 0; column < columns; ++column) {
    visible = visible || exposed.Busy(column) >= 0.02;
    bars.Add(exposed.Busy(column) >= 0.5 ? "^" : exposed.Busy(column) >= 0.02 ? "'" : " ", Style::kBad);
  }
  if (visible) {
    lines.push_back(Labelled("exposed", bars, share(exposed_ns)));
  }

  std::vector<Row> path(num_streams, Row(columns, step_ns));
  for (const int i : schedules::CriticalPath(program, timeline)) {
    path[program.instructions[i].stream].Add(kOther, timeline.instructions[i].start_ns,
                                             timeline.instructions[i].end_ns);
  }
  StyledLine critical;
  for (int column = 0; column < columns; ++column) {
    const auto longest = std::max_element(path.begin(), path.end(), [column](const Row& a, const Row& b) {
      return a.Busy(column) < b.Busy(column);
    });
    const std::string& stream = program.streams[longest - path.begin()].name;
    critical.Add(longest->Busy(column) > 0 ? stream.substr(0, 1) : " ", Style::kDim);
  }
  lines.push_back(Labelled("critical", critical, ""));
  lines.push_back(TimeAxis(step_ns, kChartLabel, columns, unicode));
  lines.push_back(Legend(marks, unicode));
  return lines;
}

}  // namespace tandem::cli
