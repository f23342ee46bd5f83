// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/tokens.h"
#include "ops/workspace.h"

namespace tandem::ops::cuda {

// Tokens sorted by their ids; tokens of one id keep their order. An id outside the vocabulary has the key
// `vocabulary`, after all others.
struct SortedTokens {
  uint32_t* keys = nullptr;
  int32_t* places = nullptr;  // the positions of the tokens
  int64_t size = 0;
};

// A matrix on the GPU, by its bytes. `begin` and row_bytes are multiples of 2.
struct TableBytes {
  void* begin = nullptr;
  int64_t rows = 0;
  int64_t row_bytes = 0;
};

// Sorts the tokens in `work` (EmbeddingBackwardWorkBytes); the vocabulary is the rows of the table. If
// `clear`, also sets all rows of the table without a token, and perhaps other rows, to zero. Requires at
// least one token and one byte in a row. Launches on `stream` and returns the runtime's error (cudaError_t).
int SortTokens(const Tokens& tokens, const TableBytes& table, bool clear, const Workspace& work,
               SortedTokens& sorted, Stream stream);

}  // namespace tandem::ops::cuda
