// SPDX-License-Identifier: Apache-2.0
#include "model/bound_pass.h"

#include <stdexcept>

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

const char* ToText(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "forward";
    case Pass::kRecompute:
      return "recompute";
    case Pass::kBackward:
      return "backward";
    case Pass::kBackwardInput:
      return "backward input";
    case Pass::kBackwardWeight:
      return "backward weight";
  }
  return "?";
}

}  // namespace tandem::model
