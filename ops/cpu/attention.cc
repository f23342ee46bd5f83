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
constexpr int kTileRows = kVectorBytes == 64 ? 8 : 4;

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
  for (; i + kTileRows <= rows; i += kTileRows) {
    Tile<kTileRows, V>(depth, a + i * row, row, column, b, b_stride, c + i * c_stride, c_stride, add);
  }
  for (; i < rows; ++i) {
    Tile<1, V>(depth, a + i * row, row, column, b, b_stride, c + i * c_stride, c_stride, add);
  }
}

// C[rows, columns] (+)= A[rows, depth] * B[depth, columns]; columns: a multiple of the vector's lanes.
template <typename T>
void Multiply(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t row, int64_t column,
              const T* b, int64_t b_stride, T* c, int64_t c_stride, bool add) {
  constexpr int64_t kLanes = Lanes<T>::kCount;
  int64_t j = 0;
  for (; j + 2 * kLanes <= columns; j += 2 * kLanes) {
    Panel<2>(rows, depth, a, row, column, b + j, b_stride, c + j, c_stride, add);
  }
  if (j < columns) {
    Panel<1>(rows, depth, a, row, column, b + j, b_stride, c + j, c_stride, add);
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

// The scores of row `row` of a block before its document's own: exp makes zeros of them.
template <typename T>
inline void HideOthers(const int64_t* starts, int64_t row, int64_t first, T* scores) {
  if (starts == nullptr) {
    return;
  }
  for (int64_t j = 0; j < starts[row] - first; ++j) {
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

}  // namespace

template <typename E>
void Attention(const AttentionArgs<E>& args) {
  using T = Arithmetic<E>;
  constexpr int64_t kLanes = Lanes<T>::kCount;
  const AttentionShape& shape = args.shape;
  const int64_t length = shape.length;
  const int64_t dim = shape.head_dim;
  const int64_t ld = AttentionRowStride(length, sizeof(T));
  const int64_t padded_dim = AttentionPaddedDim(dim, sizeof(T));
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t context_stride = shape.context_columns();
  const int64_t stride = shape.qkv_columns();
  const E* q = args.qkv;
  const E* k = q + shape.heads * dim;
  const E* v = k + shape.kv_heads * dim;
  const T scale = 1 / SquareRoot(static_cast<T>(dim));

  T* keys = static_cast<T*>(args.work.begin);  // [D, ld], transposed
  T* values = keys + ld * padded_dim;          // [S, Dp]
  T* scores = values + ld * padded_dim;        // [kRows, ld]
  T* queries = scores + kRows * ld;            // [kRows, Dp]
  T* outputs = queries + kRows * padded_dim;

  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const int64_t first_row = sequence * length;
    for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      PackTransposed(k + first_row * stride + kv_head * dim, stride, length, dim, keys, ld);
      Pack(v + first_row * stride + kv_head * dim, stride, length, dim, T{1}, values, padded_dim);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        T* head_lse = args.lse + (sequence * shape.heads + head) * length;
        for (int64_t from = 0; from < length; from += kRows) {
          const int64_t* starts = args.documents.At(sequence, from);
          const int64_t first = FirstColumn<T>(starts);
          const int64_t rows = Smaller(kRows, length - from);
          const int64_t seen = from + rows - first;
          const int64_t columns = (seen + kLanes - 1) / kLanes * kLanes;
          Pack(q + (first_row + from) * stride + head * dim, stride, rows, dim, scale, queries, padded_dim);
          Multiply(rows, columns, dim, queries, padded_dim, 1, keys + first, ld, scores, ld, false);
          T inverse[kRows];
          for (int64_t i = 0; i < rows; ++i) {
            T largest = 0;
            T total = 0;
            HideOthers(starts, i, first, scores + i * ld);
            SoftmaxRow(scores + i * ld, from + i + 1 - first, columns, largest, total);
            inverse[i] = 1 / total;
            head_lse[from + i] = largest + Logarithm(total);
          }
          Multiply(rows, padded_dim, seen, scores, ld, 1, values + first * padded_dim, padded_dim, outputs,
                   padded_dim, false);
          for (int64_t i = 0; i < rows; ++i) {
            E* out = args.context + (first_row + from + i) * context_stride + head * dim;
            for (int64_t j = 0; j < dim; ++j) {
              Narrow(outputs[i * padded_dim + j] * inverse[i], out[j]);
            }
          }
        }
      }
    }
  }
}

template <typename E>
void AttentionBackward(const AttentionBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  constexpr int64_t kLanes = Lanes<T>::kCount;
  const AttentionShape& shape = args.shape;
  const int64_t length = shape.length;
  const int64_t dim = shape.head_dim;
  const int64_t ld = AttentionRowStride(length, sizeof(T));
  const int64_t padded_dim = AttentionPaddedDim(dim, sizeof(T));
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t context_stride = shape.context_columns();
  const int64_t stride = shape.qkv_columns();
  const E* q = args.qkv;
  const E* k = q + shape.heads * dim;
  const E* v = k + shape.kv_heads * dim;
  E* grad_q = args.grad_qkv;
  E* grad_k = grad_q + shape.heads * dim;
  E* grad_v = grad_k + shape.kv_heads * dim;
  const T scale = 1 / SquareRoot(static_cast<T>(dim));
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
      const E* head_k = k + first_row * stride + kv_head * dim;
      PackTransposed(head_k, stride, length, dim, keys_transposed, ld);
      Pack(head_k, stride, length, dim, T{1}, keys, padded_dim);
      PackTransposed(v + first_row * stride + kv_head * dim, stride, length, dim, values_transposed, ld);
      Fill(key_gradients, 2 * matrix);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const T* head_lse = args.lse + (sequence * shape.heads + head) * length;
        for (int64_t from = 0; from < length; from += kRows) {
          const int64_t* starts = args.documents.At(sequence, from);
          const int64_t first = FirstColumn<T>(starts);
          const int64_t rows = Smaller(kRows, length - from);
          const int64_t seen = from + rows - first;
          const int64_t columns = (seen + kLanes - 1) / kLanes * kLanes;
          Pack(q + (first_row + from) * stride + head * dim, stride, rows, dim, scale, queries, padded_dim);
          Pack(args.grad_context + (first_row + from) * context_stride + head * dim, context_stride, rows,
               dim, T{1}, gradients, padded_dim);
          Multiply(rows, columns, dim, queries, padded_dim, 1, keys_transposed + first, ld, weights, ld,
                   false);
          Multiply(rows, columns, dim, gradients, padded_dim, 1, values_transposed + first, ld,
                   score_gradients, ld, false);
          for (int64_t i = 0; i < rows; ++i) {
            const E* out = args.context + (first_row + from + i) * context_stride + head * dim;
            T delta = 0;
            for (int64_t j = 0; j < dim; ++j) {
              delta += Widen(out[j]) * gradients[i * padded_dim + j];
            }
            const T row_lse = head_lse[from + i];
            const int64_t valid = from + i + 1 - first;
            T* weight = weights + i * ld;
            T* gradient = score_gradients + i * ld;
            HideOthers(starts, i, first, weight);
            int64_t j = 0;
            for (; j + kLanes <= valid; j += kLanes) {
              const Vector<T> w = Exp<T>(Load(weight + j) - row_lse);
              Store(weight + j, w);
              Store<T>(gradient + j, w * (Load(gradient + j) - delta));
            }
            if (j < valid) {
              const int64_t left = valid - j;
              const Vector<T> w =
                  Exp<T>(LoadFirst(weight + j, left, static_cast<T>(-__builtin_huge_val())) - row_lse);
              Store(weight + j, w);
              Store<T>(gradient + j, w * (LoadFirst(gradient + j, left, delta) - delta));
              j += kLanes;
            }
            Fill(weight + j, columns - j);
            Fill(gradient + j, columns - j);
          }
          Multiply(seen, padded_dim, rows, weights, 1, ld, gradients, padded_dim,
                   value_gradients + first * padded_dim, padded_dim, true);
          Multiply(seen, padded_dim, rows, score_gradients, 1, ld, queries, padded_dim,
                   key_gradients + first * padded_dim, padded_dim, true);
          Multiply(rows, padded_dim, seen, score_gradients, ld, 1, keys + first * padded_dim, padded_dim,
                   query_gradients, padded_dim, false);
          for (int64_t i = 0; i < rows; ++i) {
            E* out = grad_q + (first_row + from + i) * stride + head * dim;
            for (int64_t j = 0; j < dim; ++j) {
              Narrow(query_gradients[i * padded_dim + j] * scale, out[j]);
            }
          }
        }
      }
      for (int64_t i = 0; i < length; ++i) {
        E* out_k = grad_k + (first_row + i) * stride + kv_head * dim;
        E* out_v = grad_v + (first_row + i) * stride + kv_head * dim;
        for (int64_t j = 0; j < dim; ++j) {
          Narrow(key_gradients[i * padded_dim + j], out_k[j]);
          Narrow(value_gradients[i * padded_dim + j], out_v[j]);
        }
      }
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
