// SPDX-License-Identifier: Apache-2.0
#include "model/node.h"

#include <stdexcept>

namespace tandem::model {

device::ElementKind ElementKindOf(ComputeType type) {
  switch (type) {
    case ComputeType::kFp32:
      return device::ElementKind::kFloat;
    case ComputeType::kFp64:
      return device::ElementKind::kDouble;
    case ComputeType::kBf16:
      return device::ElementKind::kBf16;
  }
  throw std::logic_error("no such type of elements");
}

const char* ToText(Pass pass) {
  static constexpr const char* kNames[] = {"forward", "recompute", "backward input", "backward weight"};
  return kNames[static_cast<int>(pass)];
}

}  // namespace tandem::model
