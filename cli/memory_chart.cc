#include "cli/memory_chart.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/display_text.h"
#include "plan/quantity_text.h"

namespace tandem::cli {
namespace {

constexpr int kLabel = 11;
constexpr int kMargin = 7;  // as wide as what stands behind the bars of a timeline
constexpr int kRows = 10;
constexpr int kMinColumns = 10;

enum Layer {
  kWeights,
  kGradients,
  kOptimizer,
  kSlots,
  kActivations,
  kActivationGradients,
  kScratch,
  kNumLayers
};

struct Glyph {
  const char* unicode;
  const char* ascii;
  Style style;
  const char* meaning;
};

constexpr Glyph kGlyphs[kNumLayers] = {
    {"w", "w", Style::kDim, "weights"},      {"g", "g", Style::kDim, "gradients"},
    {"o", "o", Style::kDim, "optimizer"},    {"░", "s", Style::kDim, "slots"},
    {"█", "#", Style::kBusy, "activations"}, {"▓", "+", Style::kGood, "their gradients"},
    {"▒", "x", Style::kStrong, "scratch"},
};

using Stack = std::array<int64_t, kNumLayers>;  // bytes of each layer

int64_t Total(const Stack& stack) {
  int64_t sum = 0;
  for (const int64_t bytes : stack) {
    sum += bytes;
  }
  return sum;
}

// What lives as long as the job.
Stack Persistent(const plan::MemoryPlan& memory) {
  Stack stack{};
  for (const plan::CategoryBytes& category : memory.categories) {
    if (category.category == "weights") {
      stack[kWeights] += category.bytes;
    } else if (category.category == "gradients") {
      stack[kGradients] += category.bytes;
    } else if (category.category == "optimizer") {
      stack[kOptimizer] += category.bytes;
    } else if (category.category == "parameter slots" || category.category == "gradient slots" ||
               category.category == "staging") {
      stack[kSlots] += category.bytes;
    }
  }
  return stack;
}

// The fullest moment of each column. A moment lasts until the next instruction's.
std::vector<Stack> Columns(const plan::MemoryPlan& memory, const std::vector<int64_t>& times, int64_t step_ns,
                           int columns) {
  const Stack persistent = Persistent(memory);
  std::vector<Stack> result(columns, persistent);
  const auto column_of = [&](int64_t ns) {
    return std::clamp(static_cast<int>(static_cast<double>(ns) / static_cast<double>(step_ns) * columns), 0,
                      columns - 1);
  };
  for (size_t i = 0; i < times.size(); ++i) {
    const schedules_v1::MemoryUse& use = memory.train.points[i].use;
    Stack stack = persistent;
    stack[kActivations] = use.activations;
    stack[kActivationGradients] = use.gradients;
    stack[kScratch] = use.scratch;
    const int last = i + 1 < times.size() ? column_of(times[i + 1]) : columns - 1;
    for (int column = column_of(times[i]); column <= last; ++column) {
      if (Total(stack) > Total(result[column])) {
        result[column] = stack;
      }
    }
  }
  return result;
}

// What covers most of [low, high) of the stack; kNumLayers where it is mostly empty.
int LayerAt(const Stack& stack, double low, double high) {
  int best = kNumLayers;
  double most = (high - low) / 2;
  double begin = 0;
  for (int layer = 0; layer < kNumLayers; ++layer) {
    const double end = begin + static_cast<double>(stack[layer]);
    const double covered = std::min(end, high) - std::max(begin, low);
    if (covered > most) {
      best = layer;
      most = covered;
    }
    begin = end;
  }
  if (best == kNumLayers && begin > (low + high) / 2) {  // several layers share the cell
    double at = 0;
    for (int layer = 0; layer < kNumLayers; ++layer) {
      at += static_cast<double>(stack[layer]);
      if (at > (low + high) / 2) {
        return layer;
      }
    }
  }
  return best;
}

}  // namespace

std::vector<StyledLine> MemoryChart(const plan::MemoryPlan& memory, const schedules_v1::Timeline& timeline,
                                    const ChartShape& shape) {
  const int64_t step_ns = schedules_v1::StepNanoseconds(timeline);
  const int columns = shape.columns - kLabel - kMargin;
  if (step_ns <= 0 || columns < kMinColumns || memory.train.points.empty()) {
    return {};
  }
  const std::vector<Stack> stacks = Columns(memory, schedules_v1::IssueTimes(timeline), step_ns, columns);
  int64_t top = 0;
  std::array<bool, kNumLayers> used{};
  for (const Stack& stack : stacks) {
    top = std::max(top, Total(stack));
    for (int layer = 0; layer < kNumLayers; ++layer) {
      used[layer] = used[layer] || stack[layer] > 0;
    }
  }

  std::vector<StyledLine> lines;
  for (int row = kRows - 1; row >= 0; --row) {
    const double low = static_cast<double>(top) * row / kRows;
    const double high = static_cast<double>(top) * (row + 1) / kRows;
    const std::string label = row == kRows - 1         ? plan::SizeText(top)
                              : row == (kRows - 1) / 2 ? plan::SizeText(top / 2)
                              : row == 0               ? "0"
                                                       : "";
    StyledLine line(PadRight(PadLeft(label, kLabel - 1), kLabel));
    for (const Stack& stack : stacks) {
      const int layer = LayerAt(stack, low, high);
      if (layer == kNumLayers) {
        line.Add(" ");
      } else {
        line.Add(shape.unicode ? kGlyphs[layer].unicode : kGlyphs[layer].ascii, kGlyphs[layer].style);
      }
    }
    lines.push_back(std::move(line));
  }
  lines.push_back(TimeAxis(step_ns, kLabel, columns, shape.unicode));
  StyledLine legend("  ");
  for (int layer = 0; layer < kNumLayers; ++layer) {
    if (used[layer]) {
      legend.Add(shape.unicode ? kGlyphs[layer].unicode : kGlyphs[layer].ascii, kGlyphs[layer].style)
          .Add(absl::StrCat(" ", kGlyphs[layer].meaning, "  "));
    }
  }
  lines.push_back(std::move(legend));
  return lines;
}

}  // namespace tandem::cli
