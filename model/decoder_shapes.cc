// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_shapes.h"

#include <algorithm>
#include <cmath>

namespace tandem::model {

int64_t DecoderShapes::RowsAtATime(double multiple, int64_t expected, int64_t most) {
  return std::min(most, static_cast<int64_t>(std::ceil(multiple * static_cast<double>(expected))));
}

namespace {

// The columns of a block of logits, where those of no more than one are to be in memory: a quarter of the
// vocabulary, or fewer, that products are fast with and that are about kMostLogits elements at most.
constexpr int64_t kMostLogits = int64_t{1} << 28;
constexpr int64_t kColumnsTogether = 64;

}  // namespace

int64_t DecoderShapes::ColumnsOfBlock(int64_t tokens, int64_t vocabulary) {
  const int64_t most = std::min((vocabulary + 3) / 4, std::max<int64_t>(1, kMostLogits / tokens));
  const int64_t whole = (most + kColumnsTogether - 1) / kColumnsTogether * kColumnsTogether;
  return std::min(vocabulary, whole);
}

}  // namespace tandem::model
