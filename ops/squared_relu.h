// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tandem::ops {

// activated = max(up, 0)^2, element by element.
template <typename E>
struct SquaredReluArgs {
  static constexpr const char* kName = "SquaredRelu";
  const E* up;
  int64_t elements;
  E* activated;
};

// Overwrites grad_up. Also recomputes `activated`, which may be grad_activated itself, for the weight
// gradient of the next product.
template <typename E>
struct SquaredReluBackwardArgs {
  static constexpr const char* kName = "SquaredReluBackward";
  const E* up;
  const E* grad_activated;
  int64_t elements;
  E* grad_up;
  E* activated;
};

}  // namespace tandem::ops
