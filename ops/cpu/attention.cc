// SPDX-License-Identifier: Apache-2.0
// Causal attention, one head at a time. Compiled once per instruction set (CMakeLists.txt).
//
// A head's K and V are packed into matrices that are padded with zeros to whole vectors; a block of query
// rows at a time goes through small register-tiled products. The scores of a block are kept as whole rows, so
// the softmax is the plain one. Where a sequence holds documents, a whole block begins at the first key of
// its first row's document, and what lies before a later row's own has no weight.
//
// D: head_dim, S: length; Dp, Sp: padded; ld: row stride of what has S columns.
#include "ops/attention_work.h"
#include "ops/cpu/instruction_sets.h"
#include "ops/cpu/simd.h"

namespace tandem::ops::cpu::TANDEM_ISA {
namespace {

constexpr int64_t kRows = kAttentionBlockRows;

inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// What fits in the registers, with two vectors of B and one element of A: 32 registers of AVX-512, else 16.
constexpr int kTileRows = kVectorBytes == 64 ? 8 : 6;
constexpr int kFewRows = 4;  // of a smaller tile

// What of a product's rows and depth goes through the registers before the rest: B's part of the depth, two
// vectors wide, stays in the first-level cache for all of these rows, however long the sequence is. An
// element's sum goes on where it was left in memory, so that its additions have the same order.
constexpr int64_t kRowsAtOnce = 64;
constexpr int64_t kDepthAtOnce = 128;

// C[R, V vectors] (+)= A[R, depth] * B[depth, V vectors]; A's element (i, k) at a[i * row + k * column].
template <int R, int V, typename T>
inline void Tile(int64_t depth, const T* a, int64_t row, int64_t column, const T* b, int64_t b_stride, T* c,
                 int64_t c_stride, bool add) {
  constexpr int kLanes = Lanes<T>::kCount;
  Vector<T> sum[R][V];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      sum[i][j] = add ? Load(c + i * c_stride + j * kLanes) : Vector<T>{};
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vector<T> right[V];
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      right[j] = Load(b + k * b_stride + j * kLanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const T left = a[i * row + k * column];
#pragma GCC unroll 2
      for (int j = 0; j < V; ++j) {
        sum[i][j] += left * right[j];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      Store<T>(c + i * c_stride + j * kLanes, sum[i][j]);
    }
  }
}

template <int V, typename T>
inline void Panel(int64_t rows, int64_t depth, const T* a, int64_t row, int64_t column, const T* b,
                  int64_t b_stride, T* c, int64_t c_stride, bool add) {
  int64_t i = 0;
  const auto tiles = [&]<int R>(int64_t end) {
    for (; i + R <= end; i += R) {
      Tile<R, V>(depth, a + i * row, row, column, b, b_stride, c + i * c_stride, c_stride, add);
    }
  };
  // One large tile less where fewer rows are then left that fill no tile.
  const int64_t left = rows % kTileRows;
  const bool one_less = (left + kTileRows) % kFewRows < left % kFewRows;
  tiles.template operator()<kTileRows>(rows - (one_less ? kTileRows : 0));
  tiles.template operator()<kFewRows>(rows);
  tiles.template operator()<1>(rows);
}

// C[rows, columns] (+)= A[rows, depth] * B[depth, columns]; columns: a multiple of the vector's lanes.
template <typename T>
void Multiply(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t row, int64_t column,
              const T* b, int64_t b_stride, T* c, int64_t c_stride, bool add) {
  constexpr int64_t kLanes = Lanes<T>::kCount;
  for (int64_t i = 0; i < rows; i += kRowsAtOnce) {
    const int64_t some_rows = Smaller(kRowsAtOnce, rows - i);
    for (int64_t k = 0; k < depth; k += kDepthAtOnce) {
      const int64_t some_depth = Smaller(kDepthAtOnce, depth - k);
      const T* const left = a + i * row + k * column;
      const T* const right = b + k * b_stride;
      T* const out = c + i * c_stride;
      const bool adds = add || k > 0;
      int64_t j = 0;
      for (; j + 2 * kLanes <= columns; j += 2 * kLanes) {
        Panel<2>(some_rows, some_depth, left, row, column, right + j, b_stride, out + j, c_stride, adds);
      }
      if (j < columns) {
        Panel<1>(some_rows, some_depth, left, row, column, right + j, b_stride, out + j, c_stride, adds);
      }
    }
  }
}

template <typename T>
void Fill(T* out, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    out[i] = 0;
  }
}

// out[rows, width] = in[rows, columns] * scale, zeros to the right.
template <typename E, typename T = Arithmetic<E>>
void Pack(const E* in, int64_t in_stride, int64_t rows, int64_t columns, T scale, T* out, int64_t width) {
  for (int64_t i = 0; i < rows; ++i, in += in_stride, out += width) {
    for (int64_t j = 0; j < columns; ++j) {
      out[j] = Widen(in[j]) * scale;
    }
    Fill(out + columns, width - columns);
  }
}

// out[rows, columns] = in[rows, width] * scale, without what was padded.
template <typename E, typename T = Arithmetic<E>>
void Unpack(const T* in, int64_t width, int64_t rows, int64_t columns, T scale, E* out, int64_t out_stride) {
  for (int64_t i = 0; i < rows; ++i, in += width, out += out_stride) {
    for (int64_t j = 0; j < columns; ++j) {
      Narrow(in[j] * scale, out[j]);
    }
  }
}

// out[columns, width] = in[rows, columns] transposed, zeros to the right.
template <typename E, typename T = Arithmetic<E>>
void PackTransposed(const E* in, int64_t in_stride, int64_t rows, int64_t columns, T* out, int64_t width) {
  constexpr int64_t kLine = 16;
  for (int64_t from = 0; from < rows; from += kLine) {  // whole cache lines of the output at a time
    const int64_t to = Smaller(rows, from + kLine);
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = from; i < to; ++i) {
        out[j * width + i] = Widen(in[i * in_stride + j]);
      }
    }
  }
  for (int64_t j = 0; j < columns; ++j) {
    Fill(out + j * width + rows, width - rows);
  }
}

// The first column that a block of rows reads: that of its first row's document, down to a whole vector. No
// documents: 0.
template <typename T>
inline int64_t FirstColumn(const int64_t* starts) {
  return starts == nullptr ? 0 : *starts / Lanes<T>::kCount * Lanes<T>::kCount;
}

// The columns of heads in a matrix [B * S, row_stride].
template <typename E>
struct HeadColumns {
  E* begin;
  int64_t row_stride;
  int64_t head_dim;

  E* At(int64_t row, int64_t head) const { return begin + row * row_stride + head * head_dim; }
};

// Those of queries, keys and values in one matrix, or of their gradients.
template <typename E>
struct QkvColumns {
  QkvColumns(const AttentionShape& shape, E* qkv)
      : q{qkv, shape.qkv_columns(), shape.head_dim},
        k{q.At(0, shape.heads), q.row_stride, q.head_dim},
        v{k.At(0, shape.kv_heads), q.row_stride, q.head_dim} {}

  HeadColumns<E> q;
  HeadColumns<E> k;
  HeadColumns<E> v;
};

// Query rows [from, from + rows) of a sequence, and the keys that they see: [first, first + seen). Their
// scores are padded to `columns`.
template <typename T>
struct QueryBlock {
  QueryBlock(int64_t length, const DocumentStarts& documents, int64_t sequence, int64_t from)
      : from(from),
        rows(Smaller(kRows, length - from)),
        starts(documents.At(sequence, from)),
        first(FirstColumn<T>(starts)),
        seen(from + rows - first),
        columns((seen + Lanes<T>::kCount - 1) / Lanes<T>::kCount * Lanes<T>::kCount) {}

  // How many of the scores of row i are not of later keys.
  int64_t Valid(int64_t i) const { return from + i + 1 - first; }

  const int64_t from;
  const int64_t rows;
  const int64_t* const starts;
  const int64_t first;
  const int64_t seen;
  const int64_t columns;
};

// The scores of row i before its document's own: exp makes zeros of them.
template <typename T>
inline void HideOthers(const QueryBlock<T>& block, int64_t i, T* scores) {
  if (block.starts == nullptr) {
    return;
  }
  for (int64_t j = 0; j < block.starts[i] - block.first; ++j) {
    scores[j] = static_cast<T>(-__builtin_huge_val());
  }
}

// Scores [valid] become exp(score - largest), zeros follow up to `padded`; `total` is their sum.
template <typename T>
inline void SoftmaxRow(T* scores, int64_t valid, int64_t padded, T& largest, T& total) {
  constexpr int64_t kLanes = Lanes<T>::kCount;
  constexpr T kLowest = -__builtin_huge_val();
  int64_t j = 0;
  Vector<T> most = Vector<T>{} + kLowest;
  for (; j + kLanes <= valid; j += kLanes) {
    most = Max<T>(most, Load(scores + j));
  }
  if (j < valid) {
    const Vector<T> last = LoadFirst(scores + j, valid - j, kLowest);
    Store<T>(scores + j, last);  // exp makes zeros of them
    most = Max<T>(most, last);
    j += kLanes;
  }
  const int64_t end = j;
  Fill(scores + end, padded - end);
  largest = Largest<T>(most);
  Vector<T> sum = {};
  for (j = 0; j < end; j += kLanes) {
    const Vector<T> e = Exp<T>(Load(scores + j) - largest);
    Store(scores + j, e);
    sum += e;
  }
  total = Sum<T>(sum);
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
  const AttentionShape& shape = args.shape;
  const int64_t length = shape.length;
  const int64_t dim = shape.head_dim;
  const int64_t ld = AttentionRowStride(length, sizeof(T));
  const int64_t padded_dim = AttentionPaddedDim(dim, sizeof(T));
  const int64_t group = shape.heads / shape.kv_heads;
  const T scale = 1 / SquareRoot(static_cast<T>(dim));
  const QkvColumns<const E> in(shape, args.qkv);
  const HeadColumns<E> context{args.context, shape.context_columns(), dim};

  T* keys = static_cast<T*>(args.work.begin);  // [D, ld], transposed
  T* values = keys + ld * padded_dim;          // [S, Dp]
  T* scores = values + ld * padded_dim;        // [kRows, ld]
  T* queries = scores + kRows * ld;            // [kRows, Dp]
  T* outputs = queries + kRows * padded_dim;

  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const int64_t first_row = sequence * length;
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      PackTransposed(in.k.At(first_row, kv_head), in.k.row_stride, length, dim, keys, ld);
      Pack(in.v.At(first_row, kv_head), in.v.row_stride, length, dim, T{1}, values, padded_dim);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        T* head_lse = args.lse + (sequence * shape.heads + head) * length;
        for (int64_t from = 0; from < length; from += kRows) {
          const QueryBlock<T> block(length, args.documents, sequence, from);
          Pack(in.q.At(first_row + from, head), in.q.row_stride, block.rows, dim, scale, queries, padded_dim);
          Multiply(block.rows, block.columns, dim, queries, padded_dim, 1, keys + block.first, ld, scores, ld,
                   false);
          T inverse[kRows];
          for (int64_t i = 0; i < block.rows; ++i) {
            T largest = 0;
            T total = 0;
            HideOthers(block, i, scores + i * ld);
            SoftmaxRow(scores + i * ld, block.Valid(i), block.columns, largest, total);
            inverse[i] = 1 / total;
            head_lse[from + i] = largest + Logarithm(total);
          }
          Multiply(block.rows, padded_dim, block.seen, scores, ld, 1, values + block.first * padded_dim,
                   padded_dim, outputs, padded_dim, false);
          for (int64_t i = 0; i < block.rows; ++i) {
            Unpack(outputs + i * padded_dim, padded_dim, 1, dim, inverse[i],
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
  const AttentionShape& shape = args.shape;
  const int64_t length = shape.length;
  const int64_t dim = shape.head_dim;
  const int64_t ld = AttentionRowStride(length, sizeof(T));
  const int64_t padded_dim = AttentionPaddedDim(dim, sizeof(T));
  const int64_t group = shape.heads / shape.kv_heads;
  const T scale = 1 / SquareRoot(static_cast<T>(dim));
  const QkvColumns<const E> in(shape, args.qkv);
  const QkvColumns<E> grad(shape, args.grad_qkv);
  const HeadColumns<const E> context{args.context, shape.context_columns(), dim};
  const HeadColumns<const E> grad_context{args.grad_context, shape.context_columns(), dim};
  const int64_t matrix = ld * padded_dim;

  T* const work = static_cast<T*>(args.work.begin);
  T* keys_transposed = work;                    // [D, ld]
  T* values_transposed = work + matrix;         // [D, ld]
  T* keys = work + 2 * matrix;                  // [S, Dp]
  T* key_gradients = work + 3 * matrix;         // [S, Dp]
  T* value_gradients = work + 4 * matrix;       // [S, Dp]
  T* weights = work + 5 * matrix;               // [kRows, ld]
  T* score_gradients = weights + kRows * ld;    // [kRows, ld]
  T* queries = score_gradients + kRows * ld;    // [kRows, Dp]
  T* gradients = queries + kRows * padded_dim;  // [kRows, Dp], of the context
  T* query_gradients = gradients + kRows * padded_dim;

  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const int64_t first_row = sequence * length;
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      PackTransposed(in.k.At(first_row, kv_head), in.k.row_stride, length, dim, keys_transposed, ld);
      Pack(in.k.At(first_row, kv_head), in.k.row_stride, length, dim, T{1}, keys, padded_dim);
      PackTransposed(in.v.At(first_row, kv_head), in.v.row_stride, length, dim, values_transposed, ld);
      Fill(key_gradients, 2 * matrix);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const T* head_lse = args.lse + (sequence * shape.heads + head) * length;
        for (int64_t from = 0; from < length; from += kRows) {
          const QueryBlock<T> block(length, args.documents, sequence, from);
          Pack(in.q.At(first_row + from, head), in.q.row_stride, block.rows, dim, scale, queries, padded_dim);
          Pack(grad_context.At(first_row + from, head), grad_context.row_stride, block.rows, dim, T{1},
               gradients, padded_dim);
          Multiply(block.rows, block.columns, dim, queries, padded_dim, 1, keys_transposed + block.first, ld,
                   weights, ld, false);
          Multiply(block.rows, block.columns, dim, gradients, padded_dim, 1, values_transposed + block.first,
                   ld, score_gradients, ld, false);
          for (int64_t i = 0; i < block.rows; ++i) {
            const T delta =
                ContextGradientSum(context.At(first_row + from + i, head), gradients + i * padded_dim, dim);
            HideOthers(block, i, weights + i * ld);
            SoftmaxRowBackward(weights + i * ld, score_gradients + i * ld, block.Valid(i), block.columns,
                               head_lse[from + i], delta);
          }
          Multiply(block.seen, padded_dim, block.rows, weights, 1, ld, gradients, padded_dim,
                   value_gradients + block.first * padded_dim, padded_dim, true);
          Multiply(block.seen, padded_dim, block.rows, score_gradients, 1, ld, queries, padded_dim,
                   key_gradients + block.first * padded_dim, padded_dim, true);
          Multiply(block.rows, padded_dim, block.seen, score_gradients, ld, 1,
                   keys + block.first * padded_dim, padded_dim, query_gradients, padded_dim, false);
          Unpack(query_gradients, padded_dim, block.rows, dim, scale, grad.q.At(first_row + from, head),
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
