// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/product.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "ops/array_checks.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/tiled_product.h"
#include "ops/moves.h"
#include "ops/tensors.h"

namespace tandem::ops::cpu {
namespace {

Call BindFactors(const ProductArgs& product, bool add) {
  const Array& a = product.a;
  const Array& b = product.b;
  const Array& output = product.output;
  Check(a.on == DeviceKind::kCpu && b.on == DeviceKind::kCpu && output.on == DeviceKind::kCpu,
        "the operands of a product on the CPU must be on the CPU");
  if (a.type == ElementKind::kBf16) {
    CheckTiles(product);
    return [product, add] { MultiplyInTiles(product, add); };
  }
  // The out-variants would resize an output of another shape, and so silently leave the given memory.
  Check(output.rows == a.rows && output.columns == b.columns && a.columns == b.rows, "the product is [",
        a.rows, ", ", b.columns, "], its output ", output.shape());
  Check(a.type == b.type && a.type == output.type,
        "a matrix product takes operands and output of one type, not ", ToText(a.type), ", ", ToText(b.type),
        " and ", ToText(output.type));
  return
      [a = TensorOf(a), b = TensorOf(b), output = TensorOf(output), add, factor = product.factor]() mutable {
        if (add || factor != 1) {
          at::addmm_out(output, output, a, b, /*beta=*/add ? 1 : 0, /*alpha=*/factor);
        } else {
          at::mm_out(output, a, b);
        }
      };
}

}  // namespace

Call BindProduct(const ProductArgs& product) {
  const Array& addend = product.addend;
  const Array& output = product.output;
  const bool add = addend.defined() && addend.begin == output.begin;
  Call factors = BindFactors(product, add);
  if (!addend.defined() || add) {
    return factors;
  }
  const int64_t elements = output.elements();
  return WithElementType(output, [&]<typename E>(E) -> Call {
    return [factors = std::move(factors),
            add = AddArgs<E>{ElementsOf<E>("the addend", addend, elements, DeviceKind::kCpu), elements,
                             ElementsOf<E>("the output", output, elements, DeviceKind::kCpu)}] {
      factors();
      RunKernel(add);
    };
  });
}

}  // namespace tandem::ops::cpu
