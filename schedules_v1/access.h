#pragma once

#include <vector>

#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// What an opcode says of its target, from the outline alone.

bool TargetsNode(Opcode opcode);
bool TargetsUnit(Opcode opcode);

// The access of a node in the pass that `opcode` runs. Requires an opcode that targets a node.
const Access& AccessOf(const Node& node, Opcode opcode);

// The distinct units of a list of parts, in order of appearance: the order of Instruction::slots.
std::vector<UnitId> UnitsOf(const std::vector<UnitPart>& parts);

}  // namespace tandem::schedules_v1
