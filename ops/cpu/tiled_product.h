// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/product.h"

namespace tandem::ops::cpu {

// output (+)= factor a b of `product` on the CPU, whatever its addend, where a and b are bfloat16 and what is
// computed in is float: tiles of them are converted to `work`, multiplied by LibTorch, and their products
// added up in float. a: [M, K], b: [K, N], views whose rows or columns are adjacent; output: [M, N], adjacent
// columns, float, or bfloat16 and then rounded once. The bits depend on the shapes alone.
void MultiplyInTiles(const ProductArgs& product, bool add);

// Throws std::invalid_argument for other types and shapes, and if `work` has less than kTileBytes.
void CheckTiles(const ProductArgs& product);

}  // namespace tandem::ops::cpu
