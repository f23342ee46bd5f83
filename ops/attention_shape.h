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
  // If true, the backward gives the same bits each time. Otherwise it may use faster kernels that do not.
  bool repeats = true;
  // If true, a sequence has several documents (DocumentStarts), and rows attend only within their own;
  // otherwise a row attends to all rows before it. Documents are isolated from each other only if all numbers
  // are finite (attention.h).
  bool documents = false;
  double scale = 0;  // factor of the products of queries and keys; 0 means 1 / sqrt(d)

  int64_t tokens() const { return sequences * length; }
  // Columns of a row of queries, keys and values, and of its context.
  int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t context_columns() const { return heads * head_dim; }
};

// The first row of each row's document: for row s of sequence b it is starts[b * stride + s], from 0 to s,
// which never decreases within a sequence. `starts` is null if the shape has no documents.
struct DocumentStarts {
  const int64_t* starts = nullptr;
  int64_t stride = 0;

  // The starts of the rows of one sequence, from row `first` on.
  constexpr const int64_t* At(int64_t sequence, int64_t first) const {
    return starts == nullptr ? nullptr : starts + sequence * stride + first;
  }
};

inline double AttentionScale(const AttentionShape& shape) {
  return shape.scale > 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim));
}

}  // namespace tandem::ops
