// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/workspace.h"

namespace at {
class Tensor;
}

namespace tandem::ops {

// output = addend + a b, views as Operations says of its products. addend: as output, may be it, or
// undefined: none. work: at least LinearWorkBytes (linear_work.h). It refers to tensors, which must outlive
// it: make it in the call, in braces.
struct ProductArgs {
  const at::Tensor& a;  // [M, K]
  const at::Tensor& b;  // [K, N]
  const at::Tensor& addend;
  at::Tensor& output;  // [M, N]
  Workspace work;
};

}  // namespace tandem::ops
