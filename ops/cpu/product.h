// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/call.h"
#include "ops/product.h"

namespace tandem::ops::cpu {

// By LibTorch, and of bfloat16 by MultiplyInTiles. Adding to the output itself is LibTorch's fused addition;
// another addend is added to what has been rounded.
Call BindProduct(const ProductArgs& product);

}  // namespace tandem::ops::cpu
