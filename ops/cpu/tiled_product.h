// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/product.h"

namespace tandem::ops::cpu {

// Computes output (+)= factor a b of `product` on the CPU, ignoring its addend, for bfloat16 a and b with
// float arithmetic. Tiles of both are converted to `work` and multiplied by LibTorch, and the products are
// added up in float. a: [M, K], b: [K, N], views whose rows or columns are adjacent; output: [M, N] with
// adjacent columns, float, or bfloat16, which is rounded once. The bits depend only on the shapes.
void MultiplyInTiles(const ProductArgs& product, bool add);

// Throws std::invalid_argument for other types and shapes, and if `work` has less than kTileBytes.
void CheckTiles(const ProductArgs& product);

}  // namespace tandem::ops::cpu
