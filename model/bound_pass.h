// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/precision.h"

namespace c10 {
enum class ScalarType : int8_t;
}

namespace tandem::model {

// How the trainer hands a node its memory: once, when a program is bound. A pass of a node is then a call on
// tensors at fixed addresses.

// LibTorch's name of a type of elements.
c10::ScalarType ScalarTypeOf(ComputeType type);

enum class Pass : uint8_t { kForward, kRecompute, kBackward, kBackwardInput, kBackwardWeight };

const char* ToText(Pass pass);  // "backward input"

// The memory of one operand, valid as long as the bound pass is.
struct OperandMemory {
  char* begin = nullptr;  // in the device's memory
  int64_t bytes = 0;      // the bound, where sizes are dynamic
  bool adds = false;      // a gradient: add to what is there instead of overwriting it
  // For an operand that is a part of a unit: where each of its parameters begins, in layout order.
  std::vector<char*> parameters;
  ComputeType type = ComputeType::kFp32;  // of these parameters' elements
};

// Runs the pass on the current stream: kernels only, no allocation that outlives the call, gradients
// disabled.
using BoundPass = std::function<void()>;

}  // namespace tandem::model
