// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schedules/program/program.h"

namespace tandem::schedules {

// The text of a program, for people and golden tests: streams and communicators, buffers by kind with bytes
// and address, then one instruction per line. It holds everything that ranks must agree on, so ranks compare
// its digest.
std::string ToText(const Program& program, const Outline& outline);

// "backward-input layers.0.mlp mb 0", for messages. A target out of range prints as "node 99?".
std::string ToText(const Instruction& instruction, const Outline& outline);

const char* ToText(Opcode opcode);

// The name of the target: a node, unit or value. Empty if the instruction has none.
std::string TargetName(const Instruction& instruction, const Outline& outline);

// "layers.0.attention" for a part of a buffer; the buffer's name if part is -1.
std::string OperandName(const Program& program, const Operand& operand);

}  // namespace tandem::schedules
