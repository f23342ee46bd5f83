// SPDX-License-Identifier: Apache-2.0
// Causal attention, one head at a time. Compiled once per instruction set (CMakeLists.txt).
//
// A head's keys and values are packed; strips of query rows meet them in blocks of keys, through products in
// register tiles, so that what a block needs stays in the cache. The order of the additions is that of whole
// rows, however long they are: sums over keys, of products and of exponentials, go on in memory where the
// block before left them, and those over query rows go through these in their order. Exponentials are of a
// row's largest score of all: the forward keeps the scores of its rows until it has seen them all, and the
// backward has the forward's log-sum-exp. Where a sequence holds documents, a strip begins at the first key
// of its first row's document, and what lies before a later row's own has weight 0: finite, it is not seen.
//
// D: head_dim, S: length; Dp: D padded to whole cache lines; ld: row stride of a block's scores.
#include "ops/attention_work.h"
#include "ops/cpu/attention_blocks.h"
#include "ops/cpu/instruction_sets.h"
#include "ops/cpu/register_tiles.h"
#include "ops/cpu/simd.h"

namespace tandem::ops::cpu::TANDEM_ISA {
namespace {

// Lane by lane the largest of `most` and of scores [valid]. What follows in the last vector becomes what exp
// makes zeros of.
template <typename T>
inline Vector<T> LargestOfRow(T* scores, int64_t valid, Vector<T> most) {
  constexpr int64_t kLanes = Lanes<T>::kCount;
  int64_t j = 0;
  for (; j + kLanes <= valid; j += kLanes) {
    most = Max<T>(most, Load(scores + j));
  }
  if (j < valid) {
    const Vector<T> last = LoadFirst(scores + j, valid - j, static_cast<T>(-__builtin_huge_val()));
    Store<T>(scores + j, last);
    most = Max<T>(most, last);
  }
  return most;
}

// Scores [valid] become exp(score - largest), zeros follow up to `padded`. Returns `sum`, to which they are
// added lane by lane.
template <typename T>
inline Vector<T> ExpOfRow(T* scores, int64_t valid, int64_t padded, T largest, Vector<T> sum) {
  int64_t j = 0;
  for (; j < valid; j += Lanes<T>::kCount) {
    const Vector<T> e = Exp<T>(Load(scores + j) - largest);
    Store(scores + j, e);
    sum += e;
  }
  Fill(scores + j, padded - j);
  return sum;
}

// The sum over a head's dims of its context times that one's gradient: what the softmax's backward subtracts.
template <typename E, typename T = Arithmetic<E>>
inline T ContextGradientSum(const E* context, const T* gradient, int64_t dim) {
  T sum = 0;
  for (int64_t j = 0; j < dim; ++j) {
    sum += Widen(context[j]) * gradient[j];
  }
  return sum;
}

// Scores [valid] become weights, exp(score - lse), and the gradients of these become those of the scores;
// zeros follow up to `padded` in both.
template <typename T>
inline void SoftmaxRowBackward(T* scores, T* gradients, int64_t valid, int64_t padded, T lse, T delta) {
  constexpr int64_t kLanes = Lanes<T>::kCount;
  int64_t j = 0;
  for (; j + kLanes <= valid; j += kLanes) {
    const Vector<T> w = Exp<T>(Load(scores + j) - lse);
    Store(scores + j, w);
    Store<T>(gradients + j, w * (Load(gradients + j) - delta));
  }
  if (j < valid) {
    const int64_t left = valid - j;
    const Vector<T> w = Exp<T>(LoadFirst(scores + j, left, static_cast<T>(-__builtin_huge_val())) - lse);
    Store(scores + j, w);
    Store<T>(gradients + j, w * (LoadFirst(gradients + j, left, delta) - delta));
    j += kLanes;
  }
  Fill(scores + j, padded - j);
  Fill(gradients + j, padded - j);
}

}  // namespace

template <typename E>
void Attention(const AttentionArgs<E>& args) {
  using T = Arithmetic<E>;
  constexpr int64_t kQueries = kAttentionForwardRows;
  const AttentionShape& shape = args.shape;
  const int64_t length = shape.length;
  const int64_t dim = shape.head_dim;
  const int64_t ld = AttentionScoreStride(length, sizeof(T));
  const int64_t padded_dim = AttentionPaddedDim(dim, sizeof(T));
  const int64_t most_rows = Smaller(kQueries, length);
  const int64_t group = shape.heads / shape.kv_heads;
  const T scale = 1 / SquareRoot(static_cast<T>(dim));
  const QkvColumns<const E> in(shape, args.qkv);
  const HeadColumns<E> context{args.context, shape.context_columns(), dim};

  T* const keys = static_cast<T*>(args.work.begin);                         // [S / kPair, D, kPair]
  T* const values = keys + AttentionPaddedLength(length, sizeof(T)) * dim;  // [S, Dp]
  T* const queries = values + length * padded_dim;                          // [kQueries, Dp]
  T* const outputs = queries + most_rows * padded_dim;                      // [kQueries, Dp]
  T* const scores = outputs + most_rows * padded_dim;  // [S / kAttentionBlockKeys, kQueries, ld]

  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const int64_t first_row = sequence * length;
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      PackTransposed(in.k.At(first_row, kv_head), in.k.row_stride, length, dim, keys);
      Pack(in.v.At(first_row, kv_head), in.v.row_stride, length, dim, T{1}, values, padded_dim);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        T* head_lse = args.lse + (sequence * shape.heads + head) * length;
        for (int64_t from = 0; from < length; from += kQueries) {
          const int64_t rows = Smaller(kQueries, length - from);
          Pack(in.q.At(first_row + from, head), in.q.row_stride, rows, dim, scale, queries, padded_dim);
          const auto scores_of = [&](const ScoreBlock<T>& block) {
            return scores + (block.begin / kAttentionBlockKeys * most_rows + block.from - from) * ld;
          };

          Vector<T> most[kQueries];
          for (int64_t i = 0; i < rows; ++i) {
            most[i] = Vector<T>{} + static_cast<T>(-__builtin_huge_val());
          }
          ForEachScoreBlock<T>(
              length, args.documents, sequence, from, from + rows, [&](const ScoreBlock<T>& block) {
                const int64_t row = block.from - from;
                T* const block_scores = scores_of(block);
                Multiply(block.rows, block.columns, dim, queries + row * padded_dim, padded_dim, 1,
                         keys + block.begin * dim, kPair<T>, dim * kPair<T>, block_scores, ld, false);
                for (int64_t i = 0; i < block.rows; ++i) {
                  block.HideOthers(i, block_scores + i * ld);
                  most[row + i] = LargestOfRow(block_scores + i * ld, block.Valid(i), most[row + i]);
                }
              });

          T largest[kQueries];
          Vector<T> sums[kQueries];
          for (int64_t i = 0; i < rows; ++i) {
            largest[i] = Largest<T>(most[i]);
            sums[i] = Vector<T>{};
          }
          ForEachScoreBlock<T>(length, args.documents, sequence, from, from + rows,
                               [&](const ScoreBlock<T>& block) {
                                 const int64_t row = block.from - from;
                                 T* const block_scores = scores_of(block);
                                 for (int64_t i = 0; i < block.rows; ++i) {
                                   sums[row + i] = ExpOfRow(block_scores + i * ld, block.Valid(i),
                                                            block.columns, largest[row + i], sums[row + i]);
                                 }
                                 Multiply(block.rows, padded_dim, block.end - block.begin, block_scores, ld,
                                          1, values + block.begin * padded_dim, padded_dim, kPair<T>,
                                          outputs + row * padded_dim, padded_dim, /*add=*/!block.first);
                               });

          for (int64_t i = 0; i < rows; ++i) {
            const T total = Sum<T>(sums[i]);
            head_lse[from + i] = largest[i] + Logarithm(total);
            Unpack(outputs + i * padded_dim, padded_dim, 1, dim, 1 / total,
                   context.At(first_row + from + i, head), context.row_stride);
          }
        }
      }
    }
  }
}

template <typename E>
void AttentionBackward(const AttentionBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  constexpr int64_t kQueries = kAttentionBackwardRows;
  const AttentionShape& shape = args.shape;
  const int64_t length = shape.length;
  const int64_t dim = shape.head_dim;
  const int64_t ld = AttentionScoreStride(length, sizeof(T));
  const int64_t padded_dim = AttentionPaddedDim(dim, sizeof(T));
  const int64_t most_rows = Smaller(kQueries, length);
  const int64_t group = shape.heads / shape.kv_heads;
  const T scale = 1 / SquareRoot(static_cast<T>(dim));
  const QkvColumns<const E> in(shape, args.qkv);
  const QkvColumns<E> grad(shape, args.grad_qkv);
  const HeadColumns<const E> context{args.context, shape.context_columns(), dim};
  const HeadColumns<const E> grad_context{args.grad_context, shape.context_columns(), dim};
  const int64_t transposed = AttentionPaddedLength(length, sizeof(T)) * dim;
  const int64_t matrix = length * padded_dim;

  T* const keys_transposed = static_cast<T*>(args.work.begin);    // [S / kPair, D, kPair]
  T* const values_transposed = keys_transposed + transposed;      // [S / kPair, D, kPair]
  T* const keys = values_transposed + transposed;                 // [S, Dp]
  T* const key_gradients = keys + matrix;                         // [S, Dp]
  T* const value_gradients = key_gradients + matrix;              // [S, Dp]
  T* const weights = value_gradients + matrix;                    // [kAttentionBlockRows, ld]
  T* const score_gradients = weights + kAttentionBlockRows * ld;  // [kAttentionBlockRows, ld]
  T* const queries = score_gradients + kAttentionBlockRows * ld;  // [kQueries, Dp]
  T* const gradients = queries + most_rows * padded_dim;          // [kQueries, Dp], of the context
  T* const query_gradients = gradients + most_rows * padded_dim;  // [kQueries, Dp]

  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const int64_t first_row = sequence * length;
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      PackTransposed(in.k.At(first_row, kv_head), in.k.row_stride, length, dim, keys_transposed);
      Pack(in.k.At(first_row, kv_head), in.k.row_stride, length, dim, T{1}, keys, padded_dim);
      PackTransposed(in.v.At(first_row, kv_head), in.v.row_stride, length, dim, values_transposed);
      Fill(key_gradients, 2 * matrix);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const T* head_lse = args.lse + (sequence * shape.heads + head) * length;
        for (int64_t from = 0; from < length; from += kQueries) {
          const int64_t rows = Smaller(kQueries, length - from);
          Pack(in.q.At(first_row + from, head), in.q.row_stride, rows, dim, scale, queries, padded_dim);
          Pack(grad_context.At(first_row + from, head), grad_context.row_stride, rows, dim, T{1}, gradients,
               padded_dim);
          T deltas[kQueries];
          for (int64_t i = 0; i < rows; ++i) {
            deltas[i] =
                ContextGradientSum(context.At(first_row + from + i, head), gradients + i * padded_dim, dim);
          }
          ForEachScoreBlock<T>(
              length, args.documents, sequence, from, from + rows, [&](const ScoreBlock<T>& block) {
                const int64_t row = block.from - from;
                const int64_t seen = block.end - block.begin;
                const T* const block_queries = queries + row * padded_dim;
                const T* const block_gradients = gradients + row * padded_dim;
                Multiply(block.rows, block.columns, dim, block_queries, padded_dim, 1,
                         keys_transposed + block.begin * dim, kPair<T>, dim * kPair<T>, weights, ld, false);
                Multiply(block.rows, block.columns, dim, block_gradients, padded_dim, 1,
                         values_transposed + block.begin * dim, kPair<T>, dim * kPair<T>, score_gradients, ld,
                         false);
                for (int64_t i = 0; i < block.rows; ++i) {
                  block.HideOthers(i, weights + i * ld);
                  SoftmaxRowBackward(weights + i * ld, score_gradients + i * ld, block.Valid(i),
                                     block.columns, head_lse[block.from + i], deltas[row + i]);
                }
                Multiply(seen, padded_dim, block.rows, weights, 1, ld, block_gradients, padded_dim, kPair<T>,
                         value_gradients + block.begin * padded_dim, padded_dim, true);
                Multiply(seen, padded_dim, block.rows, score_gradients, 1, ld, block_queries, padded_dim,
                         kPair<T>, key_gradients + block.begin * padded_dim, padded_dim, true);
                Multiply(block.rows, padded_dim, seen, score_gradients, ld, 1,
                         keys + block.begin * padded_dim, padded_dim, kPair<T>,
                         query_gradients + row * padded_dim, padded_dim, /*add=*/!block.first);
              });
          Unpack(query_gradients, padded_dim, rows, dim, scale, grad.q.At(first_row + from, head),
                 grad.q.row_stride);
        }
      }
      Unpack(key_gradients, padded_dim, length, dim, T{1}, grad.k.At(first_row, kv_head), grad.k.row_stride);
      Unpack(value_gradients, padded_dim, length, dim, T{1}, grad.v.At(first_row, kv_head),
             grad.v.row_stride);
    }
  }
}

template <typename E>
void SetAttentionKernels(Kernels<E>& kernels) {
  kernels.attention = Attention<E>;
  kernels.attention_backward = AttentionBackward<E>;
}

template void SetAttentionKernels(Kernels<float>& kernels);
template void SetAttentionKernels(Kernels<double>& kernels);
template void SetAttentionKernels(Kernels<Bf16>& kernels);

}  // namespace tandem::ops::cpu::TANDEM_ISA
