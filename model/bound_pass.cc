// SPDX-License-Identifier: Apache-2.0
#include "model/bound_pass.h"

namespace tandem::model {

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
