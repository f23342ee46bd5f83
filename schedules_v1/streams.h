#pragma once

#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// Where an instruction belongs. A Release belongs to the stream of the value's first write, which only
// its program knows; requires another opcode.
StreamKind StreamOf(const Outline& outline, const Instruction& instruction);

// kNone where the instruction does not communicate.
Communicator CommunicatorOf(Opcode opcode);

}  // namespace tandem::schedules_v1
