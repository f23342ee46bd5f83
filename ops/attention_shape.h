// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem::ops {

struct AttentionShape {
  int64_t sequences = 0;  // B
  int64_t length = 0;     // S
  int64_t heads = 0;      // a multiple of kv_heads: head h reads key and value head h / (heads / kv_heads)
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // d
  // The backward gives the same bits each time. Otherwise it may use faster kernels that do not.
  bool repeats = true;
};

inline double AttentionScale(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.head_dim));
}

}  // namespace tandem::ops
