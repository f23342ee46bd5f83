// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/blocked_attention.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "ops/attention_work.h"

namespace tandem::ops::cuda {
namespace {

void CheckLaunch(int error) {
  TORCH_CHECK(error == 0, "attention: a kernel did not start, CUDA error ", error);
}

// Hands out pieces of the work memory in order.
class Pieces {
 public:
  Pieces(Workspace work, const at::TensorOptions& options)
      : next_(static_cast<char*>(work.begin)), options_(options) {}

  at::Tensor Take(const std::vector<int64_t>& shape) {
    const at::Tensor piece = at::from_blob(next_, shape, options_);
    next_ += (static_cast<int64_t>(piece.nbytes()) + 255) / 256 * 256;
    return piece;
  }

 private:
  char* next_;
  const at::TensorOptions options_;
};

// One sequence's matrices by query head of a key-value head: views [kv_heads, length, head_dim].
struct Heads {
  const AttentionShape& s;

  // Returns head `member` of each group in a matrix of all query heads, or of qkv; its rows are `row` apart.
  at::Tensor Query(const at::Tensor& rows, int64_t member) const {
    const int64_t group = s.heads / s.kv_heads;
    return rows.as_strided({s.kv_heads, s.length, s.head_dim}, {group * s.head_dim, rows.stride(0), 1},
                           rows.storage_offset() + member * s.head_dim);
  }
  at::Tensor Key(const at::Tensor& rows) const { return KeyValue(rows, s.heads); }
  at::Tensor Value(const at::Tensor& rows) const { return KeyValue(rows, s.heads + s.kv_heads); }

 private:
  at::Tensor KeyValue(const at::Tensor& rows, int64_t head) const {
    return rows.as_strided({s.kv_heads, s.length, s.head_dim}, {s.head_dim, rows.stride(0), 1},
                           rows.storage_offset() + head * s.head_dim);
  }
};

// Options of a tensor on the current GPU whose elements are E in memory.
template <typename E>
at::TensorOptions Options() {
  constexpr at::ScalarType kType = std::is_same_v<E, Bf16>     ? at::kBFloat16
                                   : std::is_same_v<E, double> ? at::kDouble
                                                               : at::kFloat;
  return at::TensorOptions().dtype(kType).device(at::kCUDA, c10::cuda::current_device());
}

// Returns the matrix of one sequence among those at `begin`.
template <typename E>
at::Tensor RowsOf(const AttentionShape& shape, const E* begin, int64_t columns, int64_t sequence) {
  E* const rows = const_cast<E*>(begin) + sequence * shape.length * columns;
  return at::from_blob(rows, {shape.length, columns}, Options<E>());
}

// Overwrites output with scale a b.
void Multiply(at::Tensor output, const at::Tensor& a, const at::Tensor& b, double scale) {
  at::baddbmm_out(output, output, a, b, /*beta=*/0, scale);
}

// The sizes that both passes derive from a shape, and the pieces of work memory that they take.
template <typename E>
struct Pass {
  Pass(const AttentionShape& shape, Workspace work) : shape(shape), pieces(work, Options<Arithmetic<E>>()) {}

  // Takes the scores of a block of one query head for each key-value head.
  at::Tensor TakeScores() { return pieces.Take({shape.kv_heads * block * shape.length}); }

  // Calls body(query head of its group, first row, rows) for blocks of query rows, the last block of each
  // head first: it reads all columns, so it overwrites what later blocks add to.
  template <typename Body>
  void ForEachBlock(const Body& body) const {
    for (int64_t member = 0; member < group; ++member) {
      for (int64_t first = (shape.length - 1) / block * block; first >= 0; first -= block) {
        body(member, first, std::min(block, shape.length - first));
      }
    }
  }

  // Views the memory of TakeScores as [kv_heads, rows, columns].
  at::Tensor Scores(const at::Tensor& memory, int64_t rows, int64_t columns) const {
    return memory.narrow(0, 0, shape.kv_heads * rows * columns).view({shape.kv_heads, rows, columns});
  }
  ScoreBlock Block(const DocumentStarts& documents, int64_t sequence, int64_t first, int64_t rows) const {
    return {shape.kv_heads, rows, first + rows, group * shape.length, documents.At(sequence, first)};
  }
  int64_t LseOffset(int64_t sequence, int64_t member) const {
    return (sequence * shape.heads + member) * shape.length;
  }

  const AttentionShape& shape;
  const int64_t block = ScoreBlockRows(shape, sizeof(E));
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t width = shape.qkv_columns();
  const int64_t context_width = shape.context_columns();
  const double scale = AttentionScale(shape);
  const Heads heads{shape};
  const Stream stream = c10::cuda::getCurrentCUDAStream().stream();
  Pieces pieces;
};

}  // namespace

template <typename E>
void BlockedAttention(const AttentionArgs<E>& args) {
  using T = Arithmetic<E>;
  constexpr bool kConverts = std::is_same_v<E, Bf16>;
  Pass<E> pass(args.shape, args.work);
  const AttentionShape& shape = pass.shape;
  const Heads& heads = pass.heads;
  const at::Tensor memory = pass.TakeScores();
  at::Tensor wide_qkv, wide_context;
  if (kConverts) {
    const at::Tensor wide = pass.pieces.Take({shape.length * (pass.width + pass.context_width)});
    wide_qkv = wide.narrow(0, 0, shape.length * pass.width).view({shape.length, pass.width});
    wide_context = wide.narrow(0, wide_qkv.numel(), shape.length * pass.context_width)
                       .view({shape.length, pass.context_width});
  }
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const at::Tensor qkv = RowsOf(shape, args.qkv, pass.width, sequence);
    const at::Tensor context = RowsOf(shape, args.context, pass.context_width, sequence);
    const at::Tensor in = kConverts ? wide_qkv.copy_(qkv) : qkv;
    const at::Tensor out = kConverts ? wide_context : context;
    pass.ForEachBlock([&](int64_t member, int64_t first, int64_t rows) {
      const int64_t columns = first + rows;
      at::Tensor scores = pass.Scores(memory, rows, columns);
      Multiply(scores, heads.Query(in, member).narrow(1, first, rows),
               heads.Key(in).narrow(1, 0, columns).transpose(1, 2), pass.scale);
      CheckLaunch(CausalSoftmax(pass.Block(args.documents, sequence, first, rows),
                                scores.mutable_data_ptr<T>(), args.lse + pass.LseOffset(sequence, member),
                                pass.stream));
      Multiply(heads.Query(out, member).narrow(1, first, rows), scores, heads.Value(in).narrow(1, 0, columns),
               1);
    });
    if (kConverts) {
      context.copy_(out);
    }
  }
}

template <typename E>
void BlockedAttention(const AttentionBackwardArgs<E>& args) {
  using T = Arithmetic<E>;
  constexpr bool kConverts = std::is_same_v<E, Bf16>;
  Pass<E> pass(args.shape, args.work);
  const AttentionShape& shape = pass.shape;
  const Heads& heads = pass.heads;
  const at::Tensor memory = pass.TakeScores();
  const at::Tensor grad_memory = pass.TakeScores();
  at::Tensor wide_qkv, wide_grad, wide_grad_context;
  if (kConverts) {
    const at::Tensor wide = pass.pieces.Take({2 * pass.width + pass.context_width, shape.length});
    const auto take = [&](int64_t from, int64_t columns) {
      return wide.narrow(0, from, columns).view({shape.length, columns});
    };
    wide_qkv = take(0, pass.width);
    wide_grad = take(pass.width, pass.width);
    wide_grad_context = take(2 * pass.width, pass.context_width);
  }
  for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    const at::Tensor qkv = RowsOf(shape, args.qkv, pass.width, sequence);
    const at::Tensor grad_context = RowsOf(shape, args.grad_context, pass.context_width, sequence);
    const at::Tensor grad_qkv = RowsOf(shape, args.grad_qkv, pass.width, sequence);
    const at::Tensor in = kConverts ? wide_qkv.copy_(qkv) : qkv;
    const at::Tensor grad = kConverts ? wide_grad_context.copy_(grad_context) : grad_context;
    const at::Tensor out = kConverts ? wide_grad : grad_qkv;
    pass.ForEachBlock([&](int64_t member, int64_t first, int64_t rows) {
      const int64_t columns = first + rows;
      at::Tensor probabilities = pass.Scores(memory, rows, columns);
      at::Tensor grad_scores = pass.Scores(grad_memory, rows, columns);
      const at::Tensor query = heads.Query(in, member).narrow(1, first, rows);
      const at::Tensor key = heads.Key(in).narrow(1, 0, columns);
      const at::Tensor value = heads.Value(in).narrow(1, 0, columns);
      const at::Tensor grad_rows = heads.Query(grad, member).narrow(1, first, rows);
      Multiply(probabilities, query, key.transpose(1, 2), pass.scale);
      Multiply(grad_scores, grad_rows, value.transpose(1, 2), 1);
      const ScoreBlock scores = pass.Block(args.documents, sequence, first, rows);
      CheckLaunch(CausalProbabilities(scores, args.lse + pass.LseOffset(sequence, member),
                                      probabilities.mutable_data_ptr<T>(), pass.stream));
      CheckLaunch(SoftmaxBackward(scores, probabilities.const_data_ptr<T>(),
                                  grad_scores.mutable_data_ptr<T>(), pass.stream));
      Multiply(heads.Query(out, member).narrow(1, first, rows), grad_scores, key, pass.scale);
      // The last block of the first query head comes first and has all columns, so it overwrites.
      const int beta = member == 0 && columns == shape.length ? 0 : 1;
      at::Tensor grad_key = heads.Key(out).narrow(1, 0, columns);
      at::Tensor grad_value = heads.Value(out).narrow(1, 0, columns);
      at::baddbmm_out(grad_key, grad_key, grad_scores.transpose(1, 2), query, beta, pass.scale);
      at::baddbmm_out(grad_value, grad_value, probabilities.transpose(1, 2), grad_rows, beta, 1);
    });
    if (kConverts) {
      grad_qkv.copy_(out);
    }
  }
}

#define TANDEM_INSTANTIATE(E)                                   \
  template void BlockedAttention(const AttentionArgs<E>& args); \
  template void BlockedAttention(const AttentionBackwardArgs<E>& args);

TANDEM_INSTANTIATE(float)
TANDEM_INSTANTIATE(double)
TANDEM_INSTANTIATE(Bf16)

}  // namespace tandem::ops::cuda
