// SPDX-License-Identifier: Apache-2.0
#include "ops/squared_relu.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {

Call Operations::SquaredRelu(const Array& up, const Array& activated) const {
  const DeviceKind on = kernels_.kind();
  const int64_t elements = up.elements();
  return WithElementType(up, [&]<typename E>(E) {
    return kernels_.Bind(SquaredReluArgs<E>{ElementsOf<E>("up", up, elements, on), elements,
                                            ElementsOf<E>("activated", activated, elements, on)});
  });
}

Call Operations::SquaredReluBackward(const Array& up, const Array& grad_activated, const Array& grad_up,
                                     const Array& activated) const {
  const DeviceKind on = kernels_.kind();
  const int64_t elements = up.elements();
  return WithElementType(up, [&]<typename E>(E) {
    return kernels_.Bind(SquaredReluBackwardArgs<E>{
        .up = ElementsOf<E>("up", up, elements, on),
        .grad_activated = ElementsOf<E>("grad_activated", grad_activated, elements, on),
        .elements = elements,
        .grad_up = ElementsOf<E>("grad_up", grad_up, elements, on),
        .activated = ElementsOf<E>("activated", activated, elements, on)});
  });
}

}  // namespace tandem::ops
