// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace at {
class Tensor;
}

namespace tandem::model {

// For ops/rope.h, of all layers of a decoder. Private to model/.
struct RotaryTables {
  std::shared_ptr<const at::Tensor> cosines;  // [S, head_dim / 2]
  std::shared_ptr<const at::Tensor> sines;
};

}  // namespace tandem::model
