// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/product.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/tiled_product.h"
#include "ops/tensor_access.h"

namespace tandem::ops::cpu {

void Multiply(const ProductArgs& product) {
  const at::Tensor& a = product.a;
  const at::Tensor& b = product.b;
  const at::Tensor& addend = product.addend;
  at::Tensor& output = product.output;
  const bool add = addend.defined() && addend.is_same(output);
  if (a.scalar_type() == at::kBFloat16) {
    MultiplyInTiles(product, add);
  } else {
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
  if (addend.defined() && !add) {
    const int64_t elements = output.numel();
    CheckElements("the addend", addend, elements, DeviceKind::kCpu);
    CheckElements("the output", output, elements, DeviceKind::kCpu);
    WithElementType(output, [&]<typename E>(E) {
      BestKernels<E>().add(ElementsOf<E>(addend), elements, MutableElementsOf<E>(output));
    });
  }
}

}  // namespace tandem::ops::cpu
