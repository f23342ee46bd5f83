// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <type_traits>
#include <vector>

#include "ops/device_kernels.h"
#include "ops/operations.h"
#include "ops/tensor_access.h"

namespace tandem::ops {
void RopeTables(double theta, const RopeScaling& scaling, at::Tensor& cosines, at::Tensor& sines) {
  const std::vector<double> frequencies = RopeFrequencies(theta, cosines.size(1), scaling);
  const double factor = RopeAttentionFactor(scaling);
  const int64_t length = cosines.size(0);
  const int64_t half = cosines.size(1);
  CheckMatrix("cosines", cosines, length, half, DeviceKind::kCpu);
  CheckMatrix("sines", sines, length, half, DeviceKind::kCpu);
  WithElementType(cosines, [&]<typename E>(E) {
    if constexpr (std::is_same_v<E, Bf16>) {
      TORCH_CHECK(false, "rotary tables are of float or double");
    } else {
      E* cosine = MutableElementsOf<E>(cosines);
      E* sine = MutableElementsOf<E>(sines);
      for (int64_t position = 0; position < length; ++position) {
        for (int64_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(i)];
          cosine[position * half + i] = static_cast<E>(factor * std::cos(angle));
          sine[position * half + i] = static_cast<E>(factor * std::sin(angle));
        }
      }
    }
  });
}

void Operations::Rope(const at::Tensor& cosines, const at::Tensor& sines, int64_t heads, at::Tensor& x,
                      int sign) const {
  TORCH_CHECK(sign == 1 || sign == -1, "a rotation has the sign 1 or -1, not ", sign);
  const DeviceKind on = kernels_.kind();
  const int64_t length = cosines.size(0);
  const int64_t head_dim = 2 * cosines.size(1);
  CheckMatrix("cosines", cosines, length, head_dim / 2, on);
  CheckMatrix("sines", sines, length, head_dim / 2, on);
  CheckRows("x", x, on);
  const bool whole = length > 0 ? x.size(0) % length == 0 : x.size(0) == 0;
  TORCH_CHECK(whole && x.size(1) >= heads * head_dim, "x must have whole sequences of ", length,
              " rows and at least ", heads * head_dim, " columns, not ", x.sizes());
  WithElementType(x, [&]<typename E>(E) {
    using T = Arithmetic<E>;
    kernels_.Run(RopeArgs<E>{.cosines = ElementsOf<T>(cosines),
                             .sines = ElementsOf<T>(sines),
                             .sign = static_cast<T>(sign),
                             .rows = x.size(0),
                             .length = length,
                             .heads = heads,
                             .head_dim = head_dim,
                             .row_stride = x.stride(0),
                             .x = MutableElementsOf<E>(x)});
  });
}

}  // namespace tandem::ops
