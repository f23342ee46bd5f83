#pragma once

#include "platform/check.h"
#include "schedules/program/opcode.h"
#include "schedules/program/outline.h"

namespace tandem::schedules {

// What the pass of a node touches; Recompute's is the forward's (without what was kept: program.h).
inline const Access& AccessOf(const Node& node, Opcode opcode) {
  switch (opcode) {
    case Opcode::kBackward:
      return node.backward;
    case Opcode::kBackwardInput:
      return node.backward_input;
    case Opcode::kBackwardWeight:
      return node.backward_weight;
    default:
      TANDEM_CHECK(opcode == Opcode::kForward || opcode == Opcode::kRecompute,
                   "only passes of nodes have it");
      return node.forward;
  }
}

}  // namespace tandem::schedules
