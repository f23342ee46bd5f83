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
  // Rows attend within their documents, of which a sequence holds several (DocumentStarts); otherwise to all
  // rows before them. Only of finite numbers does a document not see the others (attention.h).
  bool documents = false;

  int64_t tokens() const { return sequences * length; }
  // Columns of the queries, keys and values of a row, and of its context.
  int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t context_columns() const { return heads * head_dim; }
};

// Of row s of sequence b, the first row in the sequence of its document: starts[b * stride + s], from 0 to s,
// and never less than that of the row before. Null: of a shape without documents.
struct DocumentStarts {
  const int64_t* starts = nullptr;
  int64_t stride = 0;

  // Of the rows of one sequence from row `first` on.
  constexpr const int64_t* At(int64_t sequence, int64_t first) const {
    return starts == nullptr ? nullptr : starts + sequence * stride + first;
  }
};

inline double AttentionScale(const AttentionShape& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.head_dim));
}

}  // namespace tandem::ops
