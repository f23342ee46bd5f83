// SPDX-License-Identifier: Apache-2.0
#include "fsdp/pieces.h"

namespace tandem::fsdp {

std::vector<Piece> PiecesOf(const Layout& layout, Range owned) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const Range range = Intersect(layout.parameters[i].range, owned);
    if (range.empty()) continue;
    pieces.push_back(
        {.parameter = static_cast<int>(i), .range = range, .decays = layout.parameters[i].decays});
  }
  return pieces;
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
