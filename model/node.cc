// SPDX-License-Identifier: Apache-2.0
#include "model/node.h"

#include <c10/core/ScalarType.h>

#include <stdexcept>

#include "ops/array.h"

namespace tandem::model {

c10::ScalarType ScalarTypeOf(ComputeType type) {
  switch (type) {
    case ComputeType::kFp32:
      return c10::ScalarType::Float;
    case ComputeType::kFp64:
      return c10::ScalarType::Double;
    case ComputeType::kBf16:
      return c10::ScalarType::BFloat16;
  }
  throw std::logic_error("no such type of elements");
}

ops::ElementKind ElementKindOf(ComputeType type) {
  switch (type) {
    case ComputeType::kFp32:
      return ops::ElementKind::kFloat;
    case ComputeType::kFp64:
      return ops::ElementKind::kDouble;
    case ComputeType::kBf16:
      return ops::ElementKind::kBf16;
  }
  throw std::logic_error("no such type of elements");
}

const char* ToText(Pass pass) {
  static constexpr const char* kNames[] = {"forward", "recompute", "backward input", "backward weight"};
  return kNames[static_cast<int>(pass)];
}

}  // namespace tandem::model
