#pragma once

#include <cstdint>

#include "ops/bf16.h"

struct CUstream_st;

namespace tandem::ops::cuda {

// The kernels behind the operations, on raw pointers of the current GPU. Each call launches on `stream` and
// returns the runtime's error (cudaError_t). E: the elements in memory, float, double or Bf16; sums,
// statistics and tables are of Arithmetic<E>. Matrices are row-major and contiguous unless a stride is given,
// in elements. No atomics: every sum has an order that depends on the sizes alone.
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

// One block a row of grad_weight looks through the tokens in order. Ids outside the vocabulary add to none.
// G: E, or Arithmetic<E>; sums are rounded to it once.
template <typename E, typename G>
int EmbeddingBackward(const Tokens& tokens, const E* grad_output, bool add, int64_t vocabulary,
                      int64_t columns, G* grad_weight, Stream stream);

template <typename E>
int RmsNorm(const E* x, const E* weight, double epsilon, int64_t rows, int64_t columns, E* y, Stream stream);

// residual may be null. grad_weight (+)= summed in row order. reciprocals: work memory, `rows` elements.
template <typename E, typename T = Arithmetic<E>>
int RmsNormBackward(const E* grad_y, const E* x, const E* weight, double epsilon, int64_t rows,
                    int64_t columns, const E* residual, bool add_x, E* grad_x, bool add_weight,
                    T* grad_weight, T* reciprocals, Stream stream);

// In place. Row t has position t % length; tables are [length, head_dim / 2]. sign: -1 rotates back.
template <typename E, typename T = Arithmetic<E>>
int Rope(const T* cosines, const T* sines, int sign, int64_t rows, int64_t length, int64_t heads,
         int64_t head_dim, int64_t row_stride, E* x, Stream stream);

template <typename E>
int SwiGlu(const E* gate_up, int64_t rows, int64_t inner, E* activated, Stream stream);

// Also recomputes `activated`, which may be the memory of grad_activated.
template <typename E>
int SwiGluBackward(const E* gate_up, const E* grad_activated, int64_t rows, int64_t inner, E* grad_gate_up,
                   E* activated, Stream stream);

// loss: mean of lse - logits[target]; NaN where a target is outside the vocabulary.
template <typename E, typename T = Arithmetic<E>>
int CrossEntropy(const E* logits, const Tokens& targets, int64_t columns, T* lse, double* loss,
                 Stream stream);

// May be in place.
template <typename E, typename T = Arithmetic<E>>
int CrossEntropyBackward(const E* logits, const Tokens& targets, const T* lse, int64_t columns,
                         E* grad_logits, Stream stream);

// y += x.
template <typename E>
int Add(const E* x, int64_t elements, E* y, Stream stream);

// Causal attention of one sequence, between its matrix products. A score matrix is [heads, length, length],
// row i reads columns 0 ... i. Rows of lse: [heads, length]. T: float, double; scores are not rounded.
//
// scores -> probabilities, in place (zeros behind the diagonal); lse is written.
template <typename T>
int CausalSoftmax(int64_t heads, int64_t length, T* scores, T* lse, Stream stream);

// scores -> probabilities from a known lse, in place.
template <typename T>
int CausalProbabilities(int64_t heads, int64_t length, const T* lse, T* scores, Stream stream);

// grad -> gradient of the scores, in place: p (grad - sum_j p grad).
template <typename T>
int SoftmaxBackward(int64_t heads, int64_t length, const T* probabilities, T* grad, Stream stream);

}  // namespace tandem::ops::cuda
