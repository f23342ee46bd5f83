// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace tandem::model {

// For ops/rope.h, of all layers of a decoder. Private to model/.
struct RotaryTables {
  at::Tensor cosines;  // [S, head_dim / 2]
  at::Tensor sines;
};

}  // namespace tandem::model
