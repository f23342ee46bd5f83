// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/call.h"
#include "ops/product.h"

namespace tandem::ops::cpu {

// Binds a product to LibTorch, or for bfloat16 to MultiplyInTiles. If the addend is the output itself,
// LibTorch's fused addition is used; another addend is added to the rounded product.
Call BindProduct(const ProductArgs& product);

}  // namespace tandem::ops::cpu
