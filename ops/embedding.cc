// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

constexpr int64_t kColumnsAtOnce = 4096;  // of the sum of one id's rows, on the stack

// Sums that are rounded to the elements of grad_weight once, when they are complete. The tokens of each id
// are looked for, which takes tokens² comparisons, because a sum of every row would take a table of floats.
void SumAndRound(const TokenGrid& grid, const Bf16* in, bool add, int64_t vocabulary, int64_t columns,
                 Bf16* rows) {
  const cpu::Kernels<Bf16>& kernels = cpu::BestKernels<Bf16>();
  float sum[kColumnsAtOnce];
  grid.ForEach(vocabulary, [&](int64_t first, int64_t id) {
    if (grid.FirstRowOf(id) != first) {
      return;
    }
    for (int64_t begin = 0; begin < columns; begin += kColumnsAtOnce) {
      const int64_t count = std::min(kColumnsAtOnce, columns - begin);
      Bf16* out = rows + id * columns + begin;
      if (add) {
        kernels.widen(out, count, sum);
      } else {
        std::fill_n(sum, count, 0.0F);
      }
      grid.ForEach(vocabulary, [&](int64_t row, int64_t other) {
        if (other == id) {
          kernels.accumulate(in + row * columns + begin, count, sum);
        }
      });
      kernels.narrow(sum, count, out);
    }
  });
}

}  // namespace

void Embedding(const at::Tensor& tokens, const at::Tensor& weight, at::Tensor& output) {
  const TokenGrid grid(tokens);
  const int64_t columns = weight.size(1);
  CheckMatrix("weight", weight, weight.size(0), columns);
  CheckMatrix("output", output, grid.size(), columns);
  WithElementType(weight, [&]<typename E>(E) {
    const E* rows = ElementsOf<E>(weight);
    E* out = MutableElementsOf<E>(output);
    grid.ForEach(weight.size(0), [&](int64_t row, int64_t id) {
      std::memcpy(out + row * columns, rows + id * columns, columns * sizeof(E));
    });
  });
}

void EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& grad_output, bool add,
                       at::Tensor& grad_weight) {
  const TokenGrid grid(tokens);
  const int64_t vocabulary = grad_weight.size(0);
  const int64_t columns = grad_weight.size(1);
  CheckMatrix("grad_weight", grad_weight, vocabulary, columns);
  CheckMatrix("grad_output", grad_output, grid.size(), columns);
  WithElementType(grad_output, [&]<typename E>(E) {
    if (!add) {
      std::memset(grad_weight.mutable_data_ptr(), 0, grad_weight.nbytes());
    }
    const E* in = ElementsOf<E>(grad_output);
    if constexpr (std::is_same_v<E, Bf16>) {
      if (grad_weight.scalar_type() == at::kBFloat16) {
        SumAndRound(grid, in, add, vocabulary, columns, MutableElementsOf<Bf16>(grad_weight));
        return;
      }
    }
    using T = Arithmetic<E>;
    const cpu::Kernels<E>& kernels = cpu::BestKernels<E>();
    T* rows = MutableElementsOf<T>(grad_weight);
    grid.ForEach(vocabulary, [&](int64_t row, int64_t id) {
      kernels.accumulate(in + row * columns, columns, rows + id * columns);
    });
  });
}

}  // namespace tandem::ops
