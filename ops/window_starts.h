// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/attention_shape.h"

namespace tandem::ops {

// Expresses a sliding window as starts of documents (DocumentStarts): row s of a sequence attends to the rows
// from s - window + 1 on, but not before its own document. starts: [sequences, length].
struct WindowStartsArgs {
  static constexpr const char* kName = "WindowStarts";
  DocumentStarts documents;
  int64_t sequences;
  int64_t length;
  int64_t window;
  int64_t* starts;
};

#ifdef __CUDACC__
__host__ __device__
#endif
    inline int64_t
    WindowStart(const WindowStartsArgs& args, int64_t sequence, int64_t row) {
  const int64_t document =
      args.documents.starts == nullptr ? 0 : args.documents.starts[sequence * args.documents.stride + row];
  const int64_t window = row - args.window + 1;
  return window > document ? window : document;
}

}  // namespace tandem::ops
