#include "ops/residual_add.h"

#include <ATen/core/Tensor.h>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void ResidualAdd(const at::Tensor& x, at::Tensor& y) {
  CheckElements("x", x, x.numel());
  CheckElements("y", y, x.numel());
  WithElementType(x, [&]<typename E>(E) {
    cpu::BestKernels<E>().add(ElementsOf<E>(x), x.numel(), MutableElementsOf<E>(y));
  });
}

}  // namespace tandem::ops
