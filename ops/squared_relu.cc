// SPDX-License-Identifier: Apache-2.0
#include "ops/squared_relu.h"

#include "ops/array_checks.h"
#include "ops/device_kernels.h"
#include "ops/operations.h"

namespace tandem::ops {

Call Operations::SquaredRelu(const Array& up, const Array& activated) const {
  const DeviceKind on = kernels_.kind();
  CheckElements("up", up, up.elements(), on);
  CheckElements("activated", activated, up.elements(), on);
  return WithElementType(up, [&]<typename E>(E) {
    return kernels_.Bind(SquaredReluArgs<E>{ElementsOf<E>(up), up.elements(), ElementsOf<E>(activated)});
  });
}

Call Operations::SquaredReluBackward(const Array& up, const Array& grad_activated, const Array& grad_up,
                                     const Array& activated) const {
  const DeviceKind on = kernels_.kind();
  CheckElements("up", up, up.elements(), on);
  CheckElements("grad_activated", grad_activated, up.elements(), on);
  CheckElements("grad_up", grad_up, up.elements(), on);
  CheckElements("activated", activated, up.elements(), on);
  return WithElementType(up, [&]<typename E>(E) {
    return kernels_.Bind(SquaredReluBackwardArgs<E>{ElementsOf<E>(up), ElementsOf<E>(grad_activated),
                                                    up.elements(), ElementsOf<E>(grad_up),
                                                    ElementsOf<E>(activated)});
  });
}

}  // namespace tandem::ops
