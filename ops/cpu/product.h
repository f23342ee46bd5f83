// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/workspace.h"

namespace at {
class Tensor;
}

namespace tandem::ops::cpu {

// output = addend + a b, as DeviceKernels::Multiply says: by LibTorch, and of bfloat16 by MultiplyInTiles.
// Adding to the output itself is LibTorch's fused addition; another addend is added to what has been rounded.
void Multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, at::Tensor& output,
              Workspace work);

}  // namespace tandem::ops::cpu
