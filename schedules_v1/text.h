#pragma once

#include <string>

#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// Programs as people and golden tests read them. The text holds everything that the program holds, so equal
// texts are equal programs (its digest is what ranks compare).
//
//   12  compute  backward layers.0.mlp mb 0  params layers.0@p1.0  sets layers.0.mlp@g1.0 d(layers.0.middle)
//   waits 10
//
// index, stream, what it does, then: params (units and the slots that they are read from), sets and adds
// (the gradients, of parameters by part and of values as d(value), that it overwrites or adds to), waits
// (instructions of other streams). A slot is p (parameters) or g (gradients), size class, index.

// One line per instruction after a head with the slots.
std::string ToText(const Program& program, const Outline& outline);

// "backward layers.0.mlp mb 0": what it does, for messages. Operands out of range print as "node 99?".
std::string ToText(const Instruction& instruction, const Outline& outline);

const char* ToText(Opcode opcode);              // "backward"
const char* ToText(StreamKind stream);          // "compute"
const char* ToText(Communicator communicator);  // "gather"

// "p1.0"
std::string ToText(const SlotUse& slot);

}  // namespace tandem::schedules_v1
