// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/program/opcode.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// What a node's pass accesses. For a Recompute: the access of the forward; ListOperands leaves out what was
// kept.
const Access& AccessOf(const Node& node, Opcode opcode);

// The role of an operand of a node's pass, independent of the buffer that holds it.
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
  // Always kWrites for gradients, even if a pass adds to them; always kAdds for carried states, even for the
  // first microbatch, which overwrites.
  Mode mode = Mode::kReads;
  bool operator==(const PassOperand&) const = default;
};

// The operands of a pass in their order (program.h), written into `operands`. recompute: by value, as in
// BuildOptions. trains: false in `validate`.
void ListOperands(const Node& node, Opcode opcode, const std::vector<bool>& recompute, bool trains,
                  std::vector<PassOperand>& operands);

}  // namespace tandem::schedules
