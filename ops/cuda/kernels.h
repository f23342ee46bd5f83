// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/bf16.h"
#include "ops/workspace.h"

struct CUstream_st;

namespace tandem::ops::cuda {

using device::Arithmetic;
using device::Bf16;

// The kernels behind the operations, on raw pointers of the current GPU. Each call launches on `stream` and
// returns the runtime's error (cudaError_t). E: the elements in memory, float, double or Bf16; sums,
// statistics and tables are of Arithmetic<E>. Matrices are row-major and contiguous unless a stride is given,
// in elements. No atomics: every sum has an order that depends on the sizes, and on whether rows begin at
// multiples of 16 bytes, alone. Sizes may be 0.
using Stream = CUstream_st*;

// Token ids [sequences, length], rows `stride` apart.
struct Tokens {
  const int64_t* ids = nullptr;
  int64_t sequences = 0;
  int64_t length = 0;
  int64_t stride = 0;
};

// Rows of ids outside the vocabulary become NaN.
template <typename E>
int Embedding(const Tokens& tokens, const E* weight, int64_t vocabulary, int64_t columns, E* output,
              Stream stream);

// Sorts the tokens by id, in work memory of EmbeddingBackwardWorkBytes (row_work.h); the rows of an id are
// added up in token order. Ids outside the vocabulary add to none. G: E, or Arithmetic<E>; sums are rounded
// to it once.
template <typename E, typename G>
int EmbeddingBackward(const Tokens& tokens, const E* grad_output, bool add, int64_t vocabulary,
                      int64_t columns, G* grad_weight, Workspace work, Stream stream);

template <typename E>
int RmsNorm(const E* x, const E* weight, double epsilon, int64_t rows, int64_t columns, E* y, Stream stream);

// residual may be null. grad_weight (+)= the sums of kNormGroups blocks, each of every kNormGroups-th row.
// partial_sums: RmsNormBackwardWorkBytes (row_work.h). columns: as many as kMaxNormBytes hold.
inline constexpr int64_t kMaxNormBytes = 160 << 10;  // of a row of sums, in a multiprocessor's shared memory
template <typename E>
int RmsNormBackward(const E* grad_y, const E* x, const E* weight, double epsilon, int64_t rows,
                    int64_t columns, const E* residual, bool add_x, E* grad_x, bool add_weight,
                    Arithmetic<E>* grad_weight, Arithmetic<E>* partial_sums, Stream stream);

// In place. Row t has position t % length; tables are [length, head_dim / 2]. sign: -1 rotates back.
template <typename E>
int Rope(const Arithmetic<E>* cosines, const Arithmetic<E>* sines, int sign, int64_t rows, int64_t length,
         int64_t heads, int64_t head_dim, int64_t row_stride, E* x, Stream stream);

template <typename E>
int SwiGlu(const E* gate_up, int64_t rows, int64_t inner, E* activated, Stream stream);

// Also recomputes `activated`, which may be the memory of grad_activated.
template <typename E>
int SwiGluBackward(const E* gate_up, const E* grad_activated, int64_t rows, int64_t inner, E* grad_gate_up,
                   E* activated, Stream stream);

// loss: mean of lse - logits[target]; NaN where a target is outside the vocabulary. grad_logits: its
// gradient, may be logits. losses: of each row, on the way.
template <typename E>
int CrossEntropy(const E* logits, const Tokens& targets, int64_t columns, Arithmetic<E>* losses, double* loss,
                 E* grad_logits, Stream stream);

// The same of columns [first, first + columns) of the vocabulary's, block after block. The last one writes
// the loss.
template <typename E>
int CrossEntropyBlock(const E* logits, const Tokens& targets, int64_t first, int64_t columns,
                      int64_t vocabulary, Arithmetic<E>* lse, Arithmetic<E>* target_logits, double* loss,
                      Stream stream);

// logits -> their gradient, in place.
template <typename E>
int CrossEntropyBlockBackward(const Tokens& targets, int64_t first, int64_t columns, const Arithmetic<E>* lse,
                              E* logits, Stream stream);

// Causal attention of some query rows of one sequence, between its matrix products. Their scores are
// [heads, rows, columns], and row i reads columns 0 ... columns - rows + i; its lse is at
// lse[head * lse_stride + columns - rows + i]. T: float, double; scores are not rounded.
struct ScoreBlock {
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t lse_stride = 0;
};

// scores -> probabilities, in place (zeros behind the diagonal); lse is written.
template <typename T>
int CausalSoftmax(const ScoreBlock& block, T* scores, T* lse, Stream stream);

// scores -> probabilities from a known lse, in place.
template <typename T>
int CausalProbabilities(const ScoreBlock& block, const T* lse, T* scores, Stream stream);

// grad -> gradient of the scores, in place: p (grad - sum_j p grad).
template <typename T>
int SoftmaxBackward(const ScoreBlock& block, const T* probabilities, T* grad, Stream stream);

}  // namespace tandem::ops::cuda
