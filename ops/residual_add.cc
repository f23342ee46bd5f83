#include "ops/residual_add.h"

#include <ATen/core/Tensor.h>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {

void ResidualAdd(const at::Tensor& x, at::Tensor& y) {
  CheckElements("x", x, x.numel());
  CheckElements("y", y, x.numel());
  WithElementType(x, [&]<typename T>(T) {
    cpu::BestKernels<T>().add(x.const_data_ptr<T>(), x.numel(), y.mutable_data_ptr<T>());
  });
}

}  // namespace tandem::ops
