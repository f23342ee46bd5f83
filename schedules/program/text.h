// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schedules/program/program.h"

namespace tandem::schedules {

// Programs as people and golden tests read them: streams and communicators, buffers by kind with bytes and
// address, then one instruction a line. The text holds everything that ranks must agree on, so its digest is
// what they compare.
std::string ToText(const Program& program, const Outline& outline);

// "backward-input layers.0.mlp mb 0", for messages. A target out of range prints as "node 99?".
std::string ToText(const Instruction& instruction, const Outline& outline);

const char* ToText(Opcode opcode);

// The name of the node, unit or value that the instruction is of; empty if it has no target.
std::string TargetName(const Instruction& instruction, const Outline& outline);

// "layers.0.attention" for a part of a buffer; the buffer's name if part is -1.
std::string OperandName(const Program& program, const Operand& operand);

}  // namespace tandem::schedules
