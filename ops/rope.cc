#include "ops/rope.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <type_traits>

#include "ops/cpu/kernels.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
namespace {

void Rotate(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, int sign, at::Tensor& x) {
  const int64_t length = cosines.size(0);
  const int64_t head_dim = 2 * cosines.size(1);
  CheckRotation(cosines, sines, heads, x);
  WithElementType(x, [&]<typename E>(E) {
    cpu::BestKernels<E>().rope(ElementsOf<Arithmetic<E>>(cosines), ElementsOf<Arithmetic<E>>(sines),
                               static_cast<Arithmetic<E>>(sign), x.size(0), length, heads, head_dim,
                               x.stride(0), MutableElementsOf<E>(x));
  });
}

}  // namespace

void RopeTables(double theta, at::Tensor& cosines, at::Tensor& sines) {
  const int64_t length = cosines.size(0);
  const int64_t half = cosines.size(1);
  CheckMatrix("cosines", cosines, length, half);
  CheckMatrix("sines", sines, length, half);
  WithElementType(cosines, [&]<typename E>(E) {
    if constexpr (std::is_same_v<E, Bf16>) {
      TORCH_CHECK(false, "rotary tables are of float or double");
    } else {
      E* cosine = MutableElementsOf<E>(cosines);
      E* sine = MutableElementsOf<E>(sines);
      for (int64_t position = 0; position < length; ++position) {
        for (int64_t i = 0; i < half; ++i) {
          const double exponent = static_cast<double>(i) / static_cast<double>(half);
          const double angle = static_cast<double>(position) * std::pow(theta, -exponent);
          cosine[position * half + i] = static_cast<E>(std::cos(angle));
          sine[position * half + i] = static_cast<E>(std::sin(angle));
        }
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
