// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace at {
class Tensor;
}

namespace tandem::ops {

// output (+)= a b by LibTorch on the CPU. a: [M, K], b: [K, N], output: [M, N], views of one type, float or
// double. The output is written where it lies; anything else is refused with c10::Error.
void Multiply(const at::Tensor& a, const at::Tensor& b, bool add, at::Tensor& output);

}  // namespace tandem::ops
