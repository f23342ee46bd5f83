// SPDX-License-Identifier: Apache-2.0
#include "fsdp/pieces.h"

namespace tandem::fsdp {

std::vector<Piece> PiecesOf(const Layout& layout, Range owned) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const Range range = Intersect(layout.parameters[i].range, owned);
    if (range.empty()) {
      continue;
    }
    pieces.push_back(
        {.parameter = static_cast<int>(i), .range = range, .decays = layout.parameters[i].decays});
  }
  return pieces;
}

std::vector<Gap> GapsOf(const Layout& layout, Range range) {
  std::vector<Gap> gaps;
  int64_t cursor = range.begin;
  int behind = -1;
  const auto add = [&](int64_t end) {
    if (end > cursor) {
      gaps.push_back({.range = {.begin = cursor, .end = end}, .behind = behind});
    }
  };
  for (const Piece& piece : PiecesOf(layout, range)) {
    add(piece.range.begin);
    cursor = piece.range.end;
    behind = piece.parameter;
  }
  add(range.end);
  return gaps;
}

std::vector<Range> RunsOf(const std::vector<Piece>& pieces) {
  std::vector<Range> runs;
  for (const Piece& piece : pieces) {
    if (!runs.empty() && runs.back().end == piece.range.begin) {
      runs.back().end = piece.range.end;
    } else {
      runs.push_back(piece.range);
    }
  }
  return runs;
}

}  // namespace tandem::fsdp
