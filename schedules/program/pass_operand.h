// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/opcode.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// What the pass of a node touches; Recompute's is the forward's (without what was kept: ListOperands).
const Access& AccessOf(const Node& node, Opcode opcode);

// What an operand of a node's pass is, whatever buffer holds it.
struct PassOperand {
  enum class What : uint8_t {
    kValue,
    kGradient,
    kParameters,
    kParameterGradient,
    kState,
    kCarriedState,
    kInputs,
    kScratch
  };
  What what = What::kValue;
  int id = -1;    // of the value, unit or state
  int part = -1;  // of the unit
  // For gradients kWrites, whether they are written first or added to; for carried states kAdds, though the
  // first microbatch's is kWrites.
  Mode mode = Mode::kReads;
  bool operator==(const PassOperand&) const = default;
};

// The operands of a pass in their order (program.h), written into `operands`. recompute: by value, as in
// BuildOptions. trains: false in `validate`.
void ListOperands(const Node& node, Opcode opcode, const std::vector<bool>& recompute, bool trains,
                  std::vector<PassOperand>& operands);

}  // namespace tandem::schedules
