// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/tokens.h"
#include "ops/workspace.h"

namespace tandem::ops::cuda {

// Tokens sorted by their ids, those of one id in order. An id outside of the vocabulary has the key
// `vocabulary`, behind all others.
struct SortedTokens {
  uint32_t* keys = nullptr;
  int32_t* places = nullptr;  // of the tokens
  int64_t size = 0;
};

// A matrix on the GPU, by its bytes. `begin` and row_bytes are multiples of 2.
struct TableBytes {
  void* begin = nullptr;
  int64_t rows = 0;
  int64_t row_bytes = 0;
};

// Sorts tokens whose vocabulary is the table's rows, into `work` (EmbeddingBackwardWorkBytes), and where
// `clear` is set makes every row of the table zero that has no token, perhaps others too. There is at least
// one token, and a row has bytes. Launches on `stream` and returns the runtime's error (cudaError_t).
int SortTokens(const Tokens& tokens, const TableBytes& table, bool clear, const Workspace& work,
               SortedTokens& sorted, Stream stream);

}  // namespace tandem::ops::cuda
