// SPDX-License-Identifier: Apache-2.0
// Causal attention, one head at a time. Compiled once per instruction set (CMakeLists.txt).
//
// A head's keys and values are packed. Strips of query rows are multiplied with blocks of keys by register
// tiles, so that the data of a block stays in the cache. The order of additions is that of whole rows,
// however long they are: sums over keys, of products and of exponentials, continue in memory where the block
// before left them; sums over query rows add these in their order. Exponentials are relative to the largest
// score of the whole row: the forward keeps the scores of its rows until it has seen all, and the backward
// has the forward's log-sum-exp. If a sequence has documents, a strip begins at the first key of its first
// row's document, and keys before the document of a later row have weight 0, which hides them if they are
// finite.
//
// D: head_dim, S: length; Dp: D padded to whole cache lines; ld: row stride of a block's scores.
#include "ops/attention.h"

#include "ops/attention_work.h"
#include "ops/cpu/attention_blocks.h"
#include "ops/cpu/attention_softmax.h"
#include "ops/cpu/instruction_sets.h"
#include "ops/cpu/register_tiles.h"
#include "ops/cpu/simd.h"

namespace tandem::ops::cpu::TANDEM_ISA {
namespace {

// Sizes that both passes derive from a shape.
template <typename E>
struct Sizes {
  using T = Arithmetic<E>;

  // queries: the number of rows that are processed together for all of their keys.
  Sizes(const AttentionShape& shape, int64_t queries)
      : shape(shape),
        length(shape.length),
        dim(shape.head_dim),
        ld(AttentionScoreStride(length, sizeof(T))),
        padded_dim(AttentionPaddedDim(dim, sizeof(T))),
        transposed(AttentionPaddedLength(length, sizeof(T)) * dim),
        matrix(length * padded_dim),
        queries(queries),
        most_rows(Smaller(queries, length)),
        scale(shape.scale > 0 ? static_cast<T>(shape.scale) : 1 / SquareRoot(static_cast<T>(dim))) {}

  // The log-sum-exps of a head.
  template <typename Statistics>
  Statistics* LseOf(Statistics* lse, int64_t sequence, int64_t head) const {
    return lse + (sequence * shape.heads + head) * length;
  }

  // Runs a pass: calls Begin for each key-value head, then Rows for each query head that reads it, then End.
  template <typename Pass>
  void Run(const Pass& pass) const {
    const int64_t group = shape.heads / shape.kv_heads;
    for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
      for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
        pass.Begin(sequence * length, kv_head);
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          for (int64_t from = 0; from < length; from += queries) {
            pass.Rows(sequence, head, from, Smaller(queries, length - from));
          }
        }
        pass.End(sequence * length, kv_head);
      }
    }
  }

  const AttentionShape& shape;
  const int64_t length;
  const int64_t dim;
  const int64_t ld;
  const int64_t padded_dim;
  const int64_t transposed;  // elements of a head's matrix, transposed and packed
  const int64_t matrix;      // not transposed
  const int64_t queries;
  const int64_t most_rows;
  const T scale;
};

template <typename E>
class Forward {
 public:
  using T = Arithmetic<E>;

  explicit Forward(const AttentionArgs<E>& args)
      : args_(args),
        s_(args.shape, kQueries),
        in_(args.shape, args.qkv),
        context_{args.context, args.shape.context_columns(), s_.dim},
        keys_(static_cast<T*>(args.work.begin)),
        values_(keys_ + s_.transposed),
        queries_(values_ + s_.matrix),
        outputs_(queries_ + s_.most_rows * s_.padded_dim),
        scores_(outputs_ + s_.most_rows * s_.padded_dim) {}

  void Run() const { s_.Run(*this); }

  void Begin(int64_t first_row, int64_t kv_head) const {
    PackTransposed(in_.k.At(first_row, kv_head), in_.k.row_stride, s_.length, s_.dim, keys_);
    Pack(in_.v.At(first_row, kv_head), in_.v.row_stride, s_.length, s_.dim, T{1}, values_, s_.padded_dim);
  }

  void Rows(int64_t sequence, int64_t head, int64_t from, int64_t rows) const {
    const int64_t ld = s_.ld;
    const int64_t padded_dim = s_.padded_dim;
    const int64_t first_row = sequence * s_.length + from;
    Pack(in_.q.At(first_row, head), in_.q.row_stride, rows, s_.dim, s_.scale, queries_, padded_dim);
    const auto scores_of = [&](const ScoreBlock<T>& block) {
      return scores_ + (block.begin / kAttentionBlockKeys * s_.most_rows + block.from - from) * ld;
    };

    Vector<T> most[kQueries];
    for (int64_t i = 0; i < rows; ++i) {
      most[i] = Vector<T>{} + static_cast<T>(-__builtin_huge_val());
    }
    ForEachScoreBlock<T>(
        s_.length, args_.documents, sequence, from, from + rows, [&](const ScoreBlock<T>& block) {
          const int64_t row = block.from - from;
          T* const block_scores = scores_of(block);
          Multiply(block.rows, block.columns, s_.dim, queries_ + row * padded_dim, padded_dim, 1,
                   keys_ + block.begin * s_.dim, kPair<T>, s_.dim * kPair<T>, block_scores, ld, false);
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
    ForEachScoreBlock<T>(s_.length, args_.documents, sequence, from, from + rows,
                         [&](const ScoreBlock<T>& block) {
                           const int64_t row = block.from - from;
                           T* const block_scores = scores_of(block);
                           for (int64_t i = 0; i < block.rows; ++i) {
                             sums[row + i] = ExpOfRow(block_scores + i * ld, block.Valid(i), block.columns,
                                                      largest[row + i], sums[row + i]);
                           }
                           Multiply(block.rows, padded_dim, block.end - block.begin, block_scores, ld, 1,
                                    values_ + block.begin * padded_dim, padded_dim, kPair<T>,
                                    outputs_ + row * padded_dim, padded_dim, /*add=*/!block.first);
                         });

    T* const lse = s_.LseOf(args_.lse, sequence, head) + from;
    for (int64_t i = 0; i < rows; ++i) {
      const T total = Sum<T>(sums[i]);
      lse[i] = largest[i] + Logarithm(total);
      Unpack(outputs_ + i * padded_dim, padded_dim, 1, s_.dim, 1 / total, context_.At(first_row + i, head),
             context_.row_stride);
    }
  }

  void End(int64_t, int64_t) const {}

 private:
  static constexpr int64_t kQueries = kAttentionForwardRows;

  const AttentionArgs<E>& args_;
  const Sizes<E> s_;
  const QkvColumns<const E> in_;
  const HeadColumns<E> context_;
  T* const keys_;     // [S / kPair, D, kPair]
  T* const values_;   // [S, Dp]
  T* const queries_;  // [kQueries, Dp]
  T* const outputs_;  // [kQueries, Dp]
  T* const scores_;   // [S / kAttentionBlockKeys, kQueries, ld]
};

template <typename E>
class Backward {
 public:
  using T = Arithmetic<E>;

  explicit Backward(const AttentionBackwardArgs<E>& args)
      : args_(args),
        s_(args.shape, kQueries),
        in_(args.shape, args.qkv),
        grad_(args.shape, args.grad_qkv),
        context_{args.context, args.shape.context_columns(), s_.dim},
        grad_context_{args.grad_context, args.shape.context_columns(), s_.dim},
        keys_transposed_(static_cast<T*>(args.work.begin)),
        values_transposed_(keys_transposed_ + s_.transposed),
        keys_(values_transposed_ + s_.transposed),
        key_gradients_(keys_ + s_.matrix),
        value_gradients_(key_gradients_ + s_.matrix),
        weights_(value_gradients_ + s_.matrix),
        score_gradients_(weights_ + kAttentionBlockRows * s_.ld),
        queries_(score_gradients_ + kAttentionBlockRows * s_.ld),
        gradients_(queries_ + s_.most_rows * s_.padded_dim),
        query_gradients_(gradients_ + s_.most_rows * s_.padded_dim) {}

  void Run() const { s_.Run(*this); }

  void Begin(int64_t first_row, int64_t kv_head) const {
    PackTransposed(in_.k.At(first_row, kv_head), in_.k.row_stride, s_.length, s_.dim, keys_transposed_);
    Pack(in_.k.At(first_row, kv_head), in_.k.row_stride, s_.length, s_.dim, T{1}, keys_, s_.padded_dim);
    PackTransposed(in_.v.At(first_row, kv_head), in_.v.row_stride, s_.length, s_.dim, values_transposed_);
    Fill(key_gradients_, 2 * s_.matrix);
  }

  void Rows(int64_t sequence, int64_t head, int64_t from, int64_t rows) const {
    const int64_t ld = s_.ld;
    const int64_t padded_dim = s_.padded_dim;
    const int64_t first_row = sequence * s_.length + from;
    const T* const lse = s_.LseOf(args_.lse, sequence, head);
    Pack(in_.q.At(first_row, head), in_.q.row_stride, rows, s_.dim, s_.scale, queries_, padded_dim);
    Pack(grad_context_.At(first_row, head), grad_context_.row_stride, rows, s_.dim, T{1}, gradients_,
         padded_dim);
    T deltas[kQueries];
    for (int64_t i = 0; i < rows; ++i) {
      deltas[i] = ContextGradientSum(context_.At(first_row + i, head), gradients_ + i * padded_dim, s_.dim);
    }
    ForEachScoreBlock<T>(
        s_.length, args_.documents, sequence, from, from + rows, [&](const ScoreBlock<T>& block) {
          const int64_t row = block.from - from;
          const int64_t seen = block.end - block.begin;
          const T* const block_queries = queries_ + row * padded_dim;
          const T* const block_gradients = gradients_ + row * padded_dim;
          Multiply(block.rows, block.columns, s_.dim, block_queries, padded_dim, 1,
                   keys_transposed_ + block.begin * s_.dim, kPair<T>, s_.dim * kPair<T>, weights_, ld, false);
          Multiply(block.rows, block.columns, s_.dim, block_gradients, padded_dim, 1,
                   values_transposed_ + block.begin * s_.dim, kPair<T>, s_.dim * kPair<T>, score_gradients_,
                   ld, false);
          for (int64_t i = 0; i < block.rows; ++i) {
            block.HideOthers(i, weights_ + i * ld);
            SoftmaxRowBackward(weights_ + i * ld, score_gradients_ + i * ld, block.Valid(i), block.columns,
                               lse[block.from + i], deltas[row + i]);
          }
          Multiply(seen, padded_dim, block.rows, weights_, 1, ld, block_gradients, padded_dim, kPair<T>,
                   value_gradients_ + block.begin * padded_dim, padded_dim, true);
          Multiply(seen, padded_dim, block.rows, score_gradients_, 1, ld, block_queries, padded_dim, kPair<T>,
                   key_gradients_ + block.begin * padded_dim, padded_dim, true);
          Multiply(block.rows, padded_dim, seen, score_gradients_, ld, 1, keys_ + block.begin * padded_dim,
                   padded_dim, kPair<T>, query_gradients_ + row * padded_dim, padded_dim,
                   /*add=*/!block.first);
        });
    Unpack(query_gradients_, padded_dim, rows, s_.dim, s_.scale, grad_.q.At(first_row, head),
           grad_.q.row_stride);
  }

  void End(int64_t first_row, int64_t kv_head) const {
    Unpack(key_gradients_, s_.padded_dim, s_.length, s_.dim, T{1}, grad_.k.At(first_row, kv_head),
           grad_.k.row_stride);
    Unpack(value_gradients_, s_.padded_dim, s_.length, s_.dim, T{1}, grad_.v.At(first_row, kv_head),
           grad_.v.row_stride);
  }

 private:
  static constexpr int64_t kQueries = kAttentionBackwardRows;

  const AttentionBackwardArgs<E>& args_;
  const Sizes<E> s_;
  const QkvColumns<const E> in_;
  const QkvColumns<E> grad_;
  const HeadColumns<const E> context_;
  const HeadColumns<const E> grad_context_;
  T* const keys_transposed_;    // [S / kPair, D, kPair]
  T* const values_transposed_;  // [S / kPair, D, kPair]
  T* const keys_;               // [S, Dp]
  T* const key_gradients_;      // [S, Dp]
  T* const value_gradients_;    // [S, Dp]
  T* const weights_;            // [kAttentionBlockRows, ld]
  T* const score_gradients_;    // [kAttentionBlockRows, ld]
  T* const queries_;            // [kQueries, Dp]
  T* const gradients_;          // [kQueries, Dp], of the context
  T* const query_gradients_;    // [kQueries, Dp]
};

}  // namespace

template <typename E>
void Run(const AttentionArgs<E>& args) {
  Forward<E>(args).Run();
}

template <typename E>
void Run(const AttentionBackwardArgs<E>& args) {
  Backward<E>(args).Run();
}

TANDEM_CPU_KERNEL(AttentionArgs)
TANDEM_CPU_KERNEL(AttentionBackwardArgs)

}  // namespace tandem::ops::cpu::TANDEM_ISA
