#pragma once

#include <string>

#include "absl/status/status.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// The part of the checker that looks at one instruction alone: afterwards every operand is in range.

// num_microbatches, the size classes.
absl::Status CheckShape(const Outline& outline, const Program& program);

// Instruction i: target, microbatch, communicator, slots and flags that fit the node's access, waits.
absl::Status CheckOperands(const Outline& outline, const Program& program, int i);

// "train 12 (forward layers.0.mlp mb 0)": how every message of the checker names an instruction.
std::string DescribeInstruction(const Outline& outline, const Program& program, int i);

}  // namespace tandem::schedules_v1
