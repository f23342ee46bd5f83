// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/tiled_product.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cstring>

#include "ops/array_checks.h"
#include "ops/cpu/kernels.h"
#include "ops/linear_work.h"
#include "ops/moves.h"

namespace tandem::ops::cpu {
namespace {

// An operand whose tiles are copied to `memory` in their order in memory, so that elements are read and
// written in runs.
class Operand {
 public:
  Operand(const Array& matrix, float* memory)
      : transposed_(matrix.column_stride != 1),
        runs_apart_(transposed_ ? matrix.column_stride : matrix.row_stride),
        elements_(ElementsOf<Bf16>(matrix)),
        memory_(memory) {}

  // Returns the tile [rows, columns] at (row, column) in float.
  at::Tensor Tile(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    const int64_t runs = transposed_ ? columns : rows;
    const int64_t length = transposed_ ? rows : columns;
    const Bf16* from = elements_ + (transposed_ ? column * runs_apart_ + row : row * runs_apart_ + column);
    for (int64_t run = 0; run < runs; ++run) {
      RunKernel(WidenArgs<Bf16>{from + run * runs_apart_, length, memory_ + run * length});
    }
    const at::Tensor tile = at::from_blob(memory_, {runs, length}, at::kFloat);
    return transposed_ ? tile.t() : tile;
  }

 private:
  const bool transposed_;
  const int64_t runs_apart_;
  const Bf16* const elements_;
  float* const memory_;
};

// Writes a row of a tile of sums to the output.
void WriteRow(const float* sums, int64_t elements, bool add, float* out) {
  if (add) {
    RunKernel(AddArgs<float>{sums, elements, out});
  } else {
    std::memcpy(out, sums, elements * sizeof(float));
  }
}
void WriteRow(float* sums, int64_t elements, bool add, Bf16* out) {
  if (add) {
    RunKernel(AccumulateArgs<Bf16>{out, elements, sums});
  }
  RunKernel(NarrowArgs<Bf16>{sums, elements, out});
}

}  // namespace

void CheckTiles(const ProductArgs& product) {
  const Array& a = product.a;
  const Array& b = product.b;
  const Array& output = product.output;
  Check(output.rows == a.rows && output.columns == b.columns && b.rows == a.columns &&
            output.column_stride == 1,
        "the product is [", a.rows, ", ", b.columns, "], its output ", output.shape());
  Check(b.type == ElementKind::kBf16 &&
            (output.type == ElementKind::kFloat || output.type == ElementKind::kBf16),
        "a product of bfloat16 has two operands of it and an output of it or of float32, not ",
        ToText(b.type), " and ", ToText(output.type));
  for (const Array& matrix : {a, b}) {
    Check(matrix.column_stride == 1 || matrix.row_stride == 1,
          "the rows or the columns of a product's operand must be adjacent");
  }
  Check(product.work.begin != nullptr && product.work.bytes >= kTileBytes,
        "a product of bfloat16 on the CPU needs ", kTileBytes, " bytes of work memory, not ",
        product.work.bytes);
}

void MultiplyInTiles(const ProductArgs& product, bool add) {
  const Array& a = product.a;
  const Array& b = product.b;
  const Array& output = product.output;
  const Workspace work = product.work;
  const int64_t rows = a.rows;
  const int64_t depth = a.columns;
  const int64_t columns = b.columns;
  float* const memory = static_cast<float*>(work.begin);
  const Operand left(a, memory);
  const Operand right(b, memory + kTileRows * kTileDepth);
  float* const sums = memory + 2 * kTileRows * kTileDepth;
  for (int64_t column = 0; column < columns; column += kTileRows) {
    const int64_t tile_columns = std::min(kTileRows, columns - column);
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const int64_t tile_rows = std::min(kTileRows, rows - row);
      at::Tensor tile = at::from_blob(sums, {tile_rows, tile_columns}, at::kFloat);
      if (depth == 0) {
        tile.zero_();  // the sum of no products
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
      if (product.factor != 1) {
        std::transform(sums, sums + tile_rows * tile_columns, sums,
                       [factor = static_cast<float>(product.factor)](float sum) { return sum * factor; });
      }
      const auto write = [&]<typename E>(E* out) {
        for (int64_t i = 0; i < tile_rows; ++i) {
          WriteRow(sums + i * tile_columns, tile_columns, add, out + (row + i) * output.row_stride + column);
        }
      };
      if (output.type == ElementKind::kFloat) {
        write(ElementsOf<float>(output));
      } else {
        write(ElementsOf<Bf16>(output));
      }
    }
  }
}

}  // namespace tandem::ops::cpu
