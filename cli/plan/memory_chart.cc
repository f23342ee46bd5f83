// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/memory_chart.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/terminal/display_text.h"
#include "plan/quantity_text.h"

namespace tandem::cli {
namespace {

constexpr int kRows = 10;

enum Layer {
  kWeights,
  kGradients,
  kOptimizerState,
  kParameters,
  kContributions,
  kActivations,
  kActivationGradients,
  kScratch,
  kNumLayers
};

struct LayerGlyph {
  const char* unicode;
  const char* ascii;
  Style style;
  const char* meaning;
};

constexpr LayerGlyph kLayerGlyphs[kNumLayers] = {
    {"w", "w", Style::kDim, "weights"},          {"g", "g", Style::kDim, "gradients"},
    {"o", "o", Style::kDim, "optimizer"},        {"░", "p", Style::kBusy, "gathered"},
    {"c", "c", Style::kGood, "contributions"},   {"█", "#", Style::kBusy, "activations"},
    {"▓", "+", Style::kGood, "their gradients"}, {"▒", "x", Style::kStrong, "scratch"},
};

Layer LayerOf(schedules::BufferKind kind) {
  using schedules::BufferKind;
  switch (kind) {
    case BufferKind::kWeights:
    case BufferKind::kPublished:
    case BufferKind::kNodeState:
      return kWeights;
    case BufferKind::kGradients:
    case BufferKind::kFullGradient:
      return kGradients;
    case BufferKind::kOptimizerState:
      return kOptimizerState;
    case BufferKind::kGathered:
    case BufferKind::kOuterGathered:
      return kParameters;
    case BufferKind::kContribution:
    case BufferKind::kCollected:
    case BufferKind::kStaging:
      return kContributions;
    case BufferKind::kActivationGradient:
      return kActivationGradients;
    case BufferKind::kScratch:
    case BufferKind::kNormTerms:
    case BufferKind::kUpdateNorms:
    case BufferKind::kOutcome:
    case BufferKind::kInputs:
      return kScratch;
    default:  // values of microbatches, wherever they lie
      return kActivations;
  }
}

using Stack = std::array<int64_t, kNumLayers>;  // bytes of each layer

int64_t Total(const Stack& stack) { return std::accumulate(stack.begin(), stack.end(), int64_t{0}); }

void Add(const schedules::BytesByKind& bytes, Stack& stack) {
  for (int kind = 0; kind < schedules::kNumBufferKinds; ++kind) {
    stack[LayerOf(static_cast<schedules::BufferKind>(kind))] += bytes[kind];
  }
}

// Returns the largest stack of each column. A point of the curve lasts until the next point.
std::vector<Stack> Columns(const schedules::MemoryCurve& curve, int64_t step_ns, int columns) {
  Stack persistent{};
  Add(curve.persistent, persistent);
  std::vector<Stack> result(columns, persistent);
  const auto column_of = [&](int64_t ns) {
    return std::clamp(static_cast<int>(static_cast<double>(ns) / static_cast<double>(step_ns) * columns), 0,
                      columns - 1);
  };
  for (size_t i = 0; i < curve.points.size(); ++i) {
    Stack stack = persistent;
    Add(curve.points[i].locals, stack);
    const int last = i + 1 < curve.points.size() ? column_of(curve.points[i + 1].ns) : columns - 1;
    for (int column = column_of(curve.points[i].ns); column <= last; ++column) {
      if (Total(stack) > Total(result[column])) {
        result[column] = stack;
      }
    }
  }
  return result;
}

// Returns the layer that covers most of [low, high) of the stack; kNumLayers if most of it is empty.
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

// Says what the marks mean, in as many lines as that takes.
std::vector<StyledLine> Legend(const std::array<bool, kNumLayers>& used, int width, bool unicode) {
  std::vector<StyledLine> lines;
  for (int layer = 0; layer < kNumLayers; ++layer) {
    if (!used[layer]) {
      continue;
    }
    const std::string meaning = absl::StrCat(" ", kLayerGlyphs[layer].meaning);
    if (lines.empty() || lines.back().width() + 3 + DisplayWidth(meaning) > width) {
      lines.emplace_back("");
    }
    lines.back()
        .Add("  ")
        .Add(unicode ? kLayerGlyphs[layer].unicode : kLayerGlyphs[layer].ascii, kLayerGlyphs[layer].style)
        .Add(meaning);
  }
  return lines;
}

}  // namespace

std::vector<StyledLine> MemoryChart(const schedules::MemoryCurve& curve, int64_t arena_bytes, int64_t step_ns,
                                    int width, bool unicode) {
  const int columns = width - kChartLabel - kChartMargin;
  if (step_ns <= 0 || columns < kMinChartColumns || curve.points.empty()) {
    return {};
  }
  const std::vector<Stack> stacks = Columns(curve, step_ns, columns);
  std::array<bool, kNumLayers> used{};
  for (const Stack& stack : stacks) {
    for (int layer = 0; layer < kNumLayers; ++layer) {
      used[layer] = used[layer] || stack[layer] > 0;
    }
  }

  std::vector<StyledLine> lines;
  StyledLine arena(PadRight(PadLeft(plan::SizeText(arena_bytes), kChartLabel - 1), kChartLabel));
  for (int column = 0; column < columns; ++column) {
    arena.Add(unicode ? "─" : "-", Style::kDim);
  }
  arena.Add(" arena", Style::kDim);
  lines.push_back(std::move(arena));
  for (int row = kRows - 1; row >= 0; --row) {
    const double low = static_cast<double>(arena_bytes) * row / kRows;
    const double high = static_cast<double>(arena_bytes) * (row + 1) / kRows;
    const std::string label = row == (kRows - 1) / 2 ? plan::SizeText(arena_bytes / 2) : row == 0 ? "0" : "";
    StyledLine line(PadRight(PadLeft(label, kChartLabel - 1), kChartLabel));
    for (const Stack& stack : stacks) {
      const int layer = LayerAt(stack, low, high);
      if (layer == kNumLayers) {
        line.Add(" ");
      } else {
        line.Add(unicode ? kLayerGlyphs[layer].unicode : kLayerGlyphs[layer].ascii,
                 kLayerGlyphs[layer].style);
      }
    }
    lines.push_back(std::move(line));
  }
  lines.push_back(TimeAxis(step_ns, kChartLabel, columns, unicode));
  for (StyledLine& legend : Legend(used, width, unicode)) {
    lines.push_back(std::move(legend));
  }
  return lines;
}

}  // namespace tandem::cli
