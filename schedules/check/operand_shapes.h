// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// What the operand at one place of an instruction has to be for the trainer to bind it.
struct OperandShape {
  uint64_t kinds = 0;  // a bit for each kind of buffer
  Role role = Role::kValue;
  int subject = -1;    // -1: any
  int part = -1;       // -1: any part, or the whole
  uint32_t modes = 0;  // a bit for each mode
  bool former = false;
  int64_t bytes = 0;      // at least so many
  bool optional = false;  // may be missing: it and what follows it
};

// The shapes of an instruction's operands in their order, as its signature and the options have them, written
// into `shapes`. Of a Report, whose number of operands is its own, nothing. A validation's forwards write
// values alone: no gradients, no state. Requires a target and microbatch in range.
void ShapesOf(const Outline& outline, const BuildOptions& options, const Instruction& instruction,
              bool validates, std::vector<OperandShape>& shapes);

}  // namespace tandem::schedules
