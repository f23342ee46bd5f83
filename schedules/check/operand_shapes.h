// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// The requirements on the operand at one place of an instruction, without which the trainer could not bind
// it.
struct OperandShape {
  uint64_t kinds = 0;  // allowed kinds of buffer, one bit for each
  Role role = Role::kValue;
  int subject = -1;    // -1: any
  int part = -1;       // -1: any part, or the whole buffer
  uint32_t modes = 0;  // allowed modes, one bit for each
  bool former = false;
  int64_t bytes = 0;      // the least size
  bool optional = false;  // this operand and those behind it may be missing
};

// Writes to `shapes` the shapes of an instruction's operands in their order, as its signature and the options
// require. A Report has any number of operands and no shapes. A forward in a validation writes only values,
// no gradients or states. Requires a target and microbatch in range.
void ShapesOf(const Outline& outline, const BuildOptions& options, const Instruction& instruction,
              bool validates, std::vector<OperandShape>& shapes);

}  // namespace tandem::schedules
