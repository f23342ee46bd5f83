// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace tandem::ops {

void Multiply(const at::Tensor& a, const at::Tensor& b, bool add, at::Tensor& output) {
  // The out-variants resize an output of another shape, which would silently leave the given memory.
  TORCH_CHECK(output.dim() == 2 && output.size(0) == a.size(0) && output.size(1) == b.size(1),
              "the product is [", a.size(0), ", ", b.size(1), "], its output ", output.sizes());
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && a.scalar_type() == output.scalar_type(),
              "a matrix product takes operands and output of one type, not ", a.scalar_type(), ", ",
              b.scalar_type(), " and ", output.scalar_type());
  if (add) {
    at::addmm_out(output, output, a, b);
  } else {
    at::mm_out(output, a, b);
  }
}

}  // namespace tandem::ops
