// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/tiled_product.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/linear_work.h"
#include "ops/tensor_access.h"

namespace tandem::ops::cpu {
namespace {

// An operand whose tiles are copied to `memory` in the order in which they lie, so that elements are read and
// written in runs.
class Operand {
 public:
  Operand(const at::Tensor& matrix, float* memory)
      : matrix_(matrix),
        transposed_(matrix.stride(1) != 1),
        runs_apart_(transposed_ ? matrix.stride(1) : matrix.stride(0)),
        elements_(ElementsOf<Bf16>(matrix)),
        memory_(memory),
        kernels_(BestKernels<Bf16>()) {
    TORCH_CHECK(matrix.stride(1) == 1 || matrix.stride(0) == 1,
                "the rows or the columns of a product's operand must be adjacent");
  }

  // [rows, columns] from there on, in float.
  at::Tensor Tile(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    const int64_t runs = transposed_ ? columns : rows;
    const int64_t length = transposed_ ? rows : columns;
    const Bf16* from = elements_ + (transposed_ ? column * runs_apart_ + row : row * runs_apart_ + column);
    for (int64_t run = 0; run < runs; ++run) {
      kernels_.widen(from + run * runs_apart_, length, memory_ + run * length);
    }
    const at::Tensor tile = at::from_blob(memory_, {runs, length}, matrix_.options().dtype(at::kFloat));
    return transposed_ ? tile.t() : tile;
  }

 private:
  const at::Tensor& matrix_;
  const bool transposed_;
  const int64_t runs_apart_;
  const Bf16* const elements_;
  float* const memory_;
  const Kernels<Bf16>& kernels_;
};

// A row of a tile of sums to the output.
void WriteRow(const Kernels<float>& kernels, const float* sums, int64_t elements, bool add, float* out) {
  if (add) {
    kernels.add(sums, elements, out);
  } else {
    std::memcpy(out, sums, elements * sizeof(float));
  }
}
void WriteRow(const Kernels<Bf16>& kernels, float* sums, int64_t elements, bool add, Bf16* out) {
  if (add) {
    kernels.accumulate(out, elements, sums);
  }
  kernels.narrow(sums, elements, out);
}

}  // namespace

void MultiplyInTiles(const ProductArgs& product, bool add) {
  const at::Tensor& a = product.a;
  const at::Tensor& b = product.b;
  at::Tensor& output = product.output;
  const Workspace work = product.work;
  const int64_t rows = a.size(0);
  const int64_t depth = a.size(1);
  const int64_t columns = b.size(1);
  TORCH_CHECK(output.dim() == 2 && output.size(0) == rows && output.size(1) == columns &&
                  b.size(0) == depth && output.stride(1) == 1,
              "the product is [", rows, ", ", columns, "], its output ", output.sizes());
  TORCH_CHECK(b.scalar_type() == at::kBFloat16 &&
                  (output.scalar_type() == at::kFloat || output.scalar_type() == at::kBFloat16),
              "a product of bfloat16 has two operands of it and an output of it or of float32, not ",
              b.scalar_type(), " and ", output.scalar_type());
  TORCH_CHECK(work.begin != nullptr && work.bytes >= kTileBytes, "a product of bfloat16 on the CPU needs ",
              kTileBytes, " bytes of work memory, not ", work.bytes);
  float* const memory = static_cast<float*>(work.begin);
  const Operand left(a, memory);
  const Operand right(b, memory + kTileRows * kTileDepth);
  float* const sums = memory + 2 * kTileRows * kTileDepth;
  for (int64_t column = 0; column < columns; column += kTileRows) {
    const int64_t tile_columns = std::min(kTileRows, columns - column);
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const int64_t tile_rows = std::min(kTileRows, rows - row);
      at::Tensor tile = at::from_blob(sums, {tile_rows, tile_columns}, a.options().dtype(at::kFloat));
      if (depth == 0) {
        tile.zero_();  // the sum of nothing
      }
      for (int64_t k = 0; k < depth; k += kTileDepth) {
        const int64_t tile_depth = std::min(kTileDepth, depth - k);
        const at::Tensor x = left.Tile(row, tile_rows, k, tile_depth);
        const at::Tensor y = right.Tile(k, tile_depth, column, tile_columns);
        if (k == 0) {
          at::mm_out(tile, x, y);
        } else {
          at::addmm_out(tile, tile, x, y);
        }
      }
      const auto write = [&]<typename E>(E* out) {
        const Kernels<E>& kernels = BestKernels<E>();
        for (int64_t i = 0; i < tile_rows; ++i) {
          WriteRow(kernels, sums + i * tile_columns, tile_columns, add,
                   out + (row + i) * output.stride(0) + column);
        }
      };
      if (output.scalar_type() == at::kFloat) {
        write(MutableElementsOf<float>(output));
      } else {
        write(MutableElementsOf<Bf16>(output));
      }
    }
  }
}

}  // namespace tandem::ops::cpu
