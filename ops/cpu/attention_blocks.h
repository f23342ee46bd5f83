// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/attention_work.h"
#include "ops/cpu/register_tiles.h"
#include "ops/cpu/simd.h"

// Packs the operands of attention on the CPU and divides its scores into blocks. Only for files that CMake
// compiles once for each instruction set (simd.h).
//
// D: head_dim, S: length; Dp: D padded to whole cache lines.
namespace tandem::ops::cpu::TANDEM_ISA {

template <typename T>
void Fill(T* out, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    out[i] = 0;
  }
}

// out[rows, width] = in[rows, columns] * scale, with zeros to the right.
template <typename E, typename T = Arithmetic<E>>
void Pack(const E* in, int64_t in_stride, int64_t rows, int64_t columns, T scale, T* out, int64_t width) {
  for (int64_t i = 0; i < rows; ++i, in += in_stride, out += width) {
    for (int64_t j = 0; j < columns; ++j) {
      out[j] = Widen(in[j]) * scale;
    }
    Fill(out + columns, width - columns);
  }
}

// out[rows, columns] = in[rows, width] * scale, without the padding.
template <typename E, typename T = Arithmetic<E>>
void Unpack(const T* in, int64_t width, int64_t rows, int64_t columns, T scale, E* out, int64_t out_stride) {
  for (int64_t i = 0; i < rows; ++i, in += width, out += out_stride) {
    for (int64_t j = 0; j < columns; ++j) {
      Narrow(in[j] * scale, out[j]);
    }
  }
}

// out[rows / kPair, columns, kPair] = in[rows, columns], transposed, with zeros behind the last row. If this
// is the right side of a product, a tile reads consecutive memory, however long the sequence is.
template <typename E, typename T = Arithmetic<E>>
void PackTransposed(const E* in, int64_t in_stride, int64_t rows, int64_t columns, T* out) {
  for (int64_t from = 0; from < rows; from += kPair<T>, in += kPair<T> * in_stride) {
    const int64_t together = Smaller(kPair<T>, rows - from);
    for (int64_t j = 0; j < columns; ++j, out += kPair<T>) {
      for (int64_t i = 0; i < together; ++i) {
        out[i] = Widen(in[i * in_stride + j]);
      }
      Fill(out + together, kPair<T> - together);
    }
  }
}

// The columns of heads in a matrix [B * S, row_stride].
template <typename E>
struct HeadColumns {
  E* begin;
  int64_t row_stride;
  int64_t head_dim;

  E* At(int64_t row, int64_t head) const { return begin + row * row_stride + head * head_dim; }
};

// Queries, keys and values in one matrix, or their gradients.
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

// The scores [rows, columns] of the query rows [from, from + rows) of a sequence for keys [begin, end), the
// part of one block of keys that they attend to. Columns after these keys pad a row to whole vectors.
template <typename T>
struct ScoreBlock {
  // The first key of the first row's document, rounded down to where a packed block of keys begins. Without
  // documents: 0.
  static int64_t FirstKey(const int64_t* starts) {
    return starts == nullptr ? 0 : *starts / kPair<T> * kPair<T>;
  }

  // starts: DocumentStarts::At the first row.
  ScoreBlock(int64_t length, const int64_t* starts, int64_t from, int64_t key_block)
      : from(from),
        rows(Smaller(kAttentionBlockRows, length - from)),
        starts(starts),
        first(key_block <= FirstKey(starts)),
        begin(first ? FirstKey(starts) : key_block),
        end(Smaller(key_block + kAttentionBlockKeys, from + rows)),
        columns((end - begin + Lanes<T>::kCount - 1) / Lanes<T>::kCount * Lanes<T>::kCount) {}

  // The number of scores of row i for keys up to the row itself.
  int64_t Valid(int64_t i) const { return Smaller(from + i + 1, end) - begin; }

  // Sets the scores of row i for keys before its own document to -infinity, which exp turns into zeros.
  void HideOthers(int64_t i, T* scores) const {
    if (starts == nullptr) {
      return;
    }
    for (int64_t j = 0; j < Smaller(starts[i], end) - begin; ++j) {
      scores[j] = static_cast<T>(-__builtin_huge_val());
    }
  }

  const int64_t from;
  const int64_t rows;
  const int64_t* const starts;
  const bool first;  // the rows attend to no key before `begin`
  const int64_t begin;
  const int64_t end;
  const int64_t columns;
};

// Calls `each` with every block of scores of query rows [from, to). All strips of rows are visited for one
// block of keys before the next, so that the keys stay in the cache.
template <typename T, typename Each>
inline void ForEachScoreBlock(int64_t length, const DocumentStarts& documents, int64_t sequence, int64_t from,
                              int64_t to, const Each& each) {
  static_assert(kAttentionBlockKeys % kAttentionBlockRows == 0,
                "no row lies before a block that its strip sees");
  const int64_t first = ScoreBlock<T>::FirstKey(documents.At(sequence, from));
  for (int64_t keys = first / kAttentionBlockKeys * kAttentionBlockKeys; keys < to;
       keys += kAttentionBlockKeys) {
    for (int64_t strip = from; strip < to; strip += kAttentionBlockRows) {
      const ScoreBlock<T> block(length, documents.At(sequence, strip), strip, keys);
      if (block.begin < block.end) {
        each(block);
      }
    }
  }
}

}  // namespace tandem::ops::cpu::TANDEM_ISA
