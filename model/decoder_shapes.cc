// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_shapes.h"

#include <algorithm>
#include <cmath>

namespace tandem::model {

int64_t DecoderShapes::MostReceived(const MixtureOfExperts& moe, int64_t tokens) {
  const int64_t all = moe.ranks * tokens;
  return moe.most_rows > 0 ? std::min(all, RowsOfRoom(moe, moe.most_rows, tokens)) : all;
}

int64_t DecoderShapes::RowsAtATime(double multiple, int64_t expected, int64_t most) {
  return std::min(most, static_cast<int64_t>(std::ceil(multiple * static_cast<double>(expected))));
}

// Chunks have about the same size, and all except the last consist of whole groups of rows, with which
// products are fast.
int64_t DecoderShapes::RowsOfChunk(int64_t rows, int64_t row_bytes, int64_t most_bytes) {
  constexpr int64_t kRowsTogether = 64;
  const auto ratio = [](int64_t a, int64_t b) { return (a + b - 1) / b; };  // rounded up
  const int64_t most = std::max<int64_t>(1, most_bytes / row_bytes);
  if (rows <= most) {
    return rows;
  }
  const int64_t together = most < kRowsTogether ? 1 : kRowsTogether;
  const int64_t chunks = ratio(rows, most / together * together);
  return ratio(ratio(rows, chunks), together) * together;
}

}  // namespace tandem::model
