#include "ops/rope.h"

#include <ATen/core/Tensor.h>

#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

void Rotate(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, int sign, at::Tensor& x) {
  const int64_t length = cosines.size(0);
  const int64_t head_dim = 2 * cosines.size(1);
  CheckRotation(cosines, sines, heads, x);
  WithElementType(x, [&]<typename T>(T) {
    cpu::BestKernels<T>().rope(cosines.const_data_ptr<T>(), sines.const_data_ptr<T>(), static_cast<T>(sign),
                               x.size(0), length, heads, head_dim, x.stride(0), x.mutable_data_ptr<T>());
  });
}

}  // namespace

void RopeTables(double theta, at::Tensor& cosines, at::Tensor& sines) {
  const int64_t length = cosines.size(0);
  const int64_t half = cosines.size(1);
  CheckMatrix("cosines", cosines, length, half);
  CheckMatrix("sines", sines, length, half);
  WithElementType(cosines, [&]<typename T>(T) {
    T* cosine = cosines.mutable_data_ptr<T>();
    T* sine = sines.mutable_data_ptr<T>();
    for (int64_t position = 0; position < length; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        const double exponent = static_cast<double>(i) / static_cast<double>(half);
        const double angle = static_cast<double>(position) * std::pow(theta, -exponent);
        cosine[position * half + i] = static_cast<T>(std::cos(angle));
        sine[position * half + i] = static_cast<T>(std::sin(angle));
      }
    }
  });
}

void Rope(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, at::Tensor& x) {
  Rotate(cosines, sines, heads, 1, x);
}

void RopeBackward(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, at::Tensor& grad) {
  Rotate(cosines, sines, heads, -1, grad);
}

}  // namespace tandem::ops
