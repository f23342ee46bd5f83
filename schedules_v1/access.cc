#include "schedules_v1/access.h"

#include <algorithm>

#include "platform/check.h"

namespace tandem::schedules_v1 {

const Access& AccessOf(const Node& node, Opcode opcode) {
  switch (opcode) {
    case Opcode::kForward:
      return node.forward;
    case Opcode::kBackward:
      return node.backward;
    case Opcode::kBackwardInput:
      return node.backward_input;
    case Opcode::kBackwardWeight:
      return node.backward_weight;
    default:
      platform::CheckFailed(__FILE__, __LINE__, "TargetsNode(opcode)",
                            "only passes of a node have an access");
  }
}

bool TargetsNode(Opcode opcode) {
  return opcode == Opcode::kForward || opcode == Opcode::kBackward || opcode == Opcode::kBackwardInput ||
         opcode == Opcode::kBackwardWeight;
}

bool TargetsUnit(Opcode opcode) {
  return opcode == Opcode::kUnshard || opcode == Opcode::kReshard || opcode == Opcode::kReduceGradients ||
         opcode == Opcode::kOptimizerStep;
}

std::vector<UnitId> UnitsOf(const std::vector<UnitPart>& parts) {
  std::vector<UnitId> units;
  for (const UnitPart& part : parts) {
    if (std::find(units.begin(), units.end(), part.unit) == units.end()) {
      units.push_back(part.unit);
    }
  }
  return units;
}

}  // namespace tandem::schedules_v1
