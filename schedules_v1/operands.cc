#include "schedules_v1/operands.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "schedules_v1/access.h"
#include "schedules_v1/hygiene.h"
#include "schedules_v1/refusal.h"
#include "schedules_v1/streams.h"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {
namespace {

bool InRange(int index, size_t size) { return index >= 0 && index < static_cast<int>(size); }

// The size of what the opcode targets; 0: it has no target, or no such opcode.
size_t NumTargets(const Outline& outline, Opcode opcode) {
  if (TargetsNode(opcode)) {
    return outline.nodes.size();
  }
  if (TargetsUnit(opcode)) {
    return outline.units.size();
  }
  return opcode == Opcode::kLoadBatch || opcode == Opcode::kRelease ? outline.values.size() : 0;
}

bool OfMicrobatch(Opcode opcode) {
  return TargetsNode(opcode) || opcode == Opcode::kLoadBatch || opcode == Opcode::kRelease ||
         opcode == Opcode::kUnshard || opcode == Opcode::kReshard || opcode == Opcode::kReduceGradients;
}

// Whether its microbatch says only what it is for, and its slot or unit what it does.
bool IsLabel(Opcode opcode) {
  return opcode == Opcode::kUnshard || opcode == Opcode::kReshard || opcode == Opcode::kReduceGradients;
}

struct SlotNeed {
  SlotRole role;
  UnitId unit;
};

bool Fits(const SlotUse& slot, const SlotNeed& need, const Program& program) {
  const std::vector<int>& counts =
      need.role == SlotRole::kParameters ? program.parameter_slots : program.gradient_slots;
  return slot.role == need.role && slot.unit == need.unit && InRange(slot.size_class, counts.size()) &&
         InRange(slot.index, counts[slot.size_class]);
}

// The slots that the instruction must name, one call of visit each, in order.
template <typename Visit>
void ForEachSlotNeed(const Outline& outline, const Instruction& instruction, Visit visit) {
  const auto units_of = [&](SlotRole role, const std::vector<UnitPart>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool seen = std::any_of(parts.begin(), parts.begin() + static_cast<int64_t>(i),
                                    [&](const UnitPart& earlier) { return earlier.unit == parts[i].unit; });
      if (!seen) {
        visit(SlotNeed{role, parts[i].unit});
      }
    }
  };
  if (TargetsNode(instruction.opcode)) {
    const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
    units_of(SlotRole::kParameters, access.parameters);
    units_of(SlotRole::kGradients, access.parameter_gradients);
  } else if (instruction.opcode == Opcode::kUnshard || instruction.opcode == Opcode::kReshard) {
    visit(SlotNeed{SlotRole::kParameters, instruction.target});
  } else if (instruction.opcode == Opcode::kReduceGradients) {
    visit(SlotNeed{SlotRole::kGradients, instruction.target});
  }
}

absl::Status CheckSlots(const Outline& outline, const Program& program, int i) {
  const Instruction& instruction = program.instructions[i];
  size_t next = 0;
  absl::Status status;
  ForEachSlotNeed(outline, instruction, [&](const SlotNeed& need) {
    const size_t index = next++;
    if (status.ok() &&
        (index >= instruction.slots.size() || !Fits(instruction.slots[index], need, program))) {
      const bool has = index < instruction.slots.size();
      const bool elsewhere = std::any_of(instruction.slots.begin(), instruction.slots.end(),
                                         [&](const SlotUse& slot) { return Fits(slot, need, program); });
      const std::string what =
          absl::StrCat("needs a ", need.role == SlotRole::kParameters ? "parameter" : "gradient", " slot of ",
                       outline.units[need.unit].name, elsewhere ? " in this place" : "", " and names ",
                       has ? ToText(instruction.slots[index]) : std::string("none"));
      status = elsewhere ? Refusal(outline, program).ByHygiene(hygiene::kSlotOrder, i, what)
                         : Refusal(outline, program).Of(i, what);
    }
  });
  if (status.ok() && instruction.slots.size() > next) {
    return Refusal(outline, program).Of(i, "names more slots than it uses");
  }
  return status;
}

absl::Status CheckFlags(const Outline& outline, const Program& program, int i) {
  const Instruction& instruction = program.instructions[i];
  size_t values = 0;
  size_t parts = 0;
  if (TargetsNode(instruction.opcode)) {
    const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
    values = access.gradient_writes.size();
    parts = access.parameter_gradients.size();
  } else if (instruction.opcode == Opcode::kReduceGradients) {
    parts = 1;
  }
  if (instruction.add_value_gradients.size() != values ||
      instruction.add_parameter_gradients.size() != parts) {
    return Refusal(outline, program).Of(i, "does not say for each gradient that it writes whether it adds");
  }
  if (instruction.of_gradient && instruction.opcode != Opcode::kRelease) {
    return Refusal(outline, program).Of(i, "is no release and yet of a gradient");
  }
  return absl::OkStatus();
}

absl::Status CheckWaits(const Outline& outline, const Program& program, int i) {
  const Instruction& instruction = program.instructions[i];
  for (const int wait : instruction.waits) {
    if (wait < 0 || wait >= i) {
      return Refusal(outline, program)
          .Of(i, absl::StrCat("waits for ", wait, ", which is no earlier instruction",
                              InRange(wait, program.instructions.size()) && wait != i
                                  ? absl::StrCat(": ", DescribeInstruction(outline, program, wait))
                                  : ""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckShape(const Outline& outline, const Program& program) {
  if (program.num_microbatches < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(program.name, ": num_microbatches is ", program.num_microbatches));
  }
  if (program.parameter_slots.size() != program.parameter_slot_bytes.size() ||
      program.gradient_slots.size() != program.gradient_slot_bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(program.name, ": every size class needs a size and a count"));
  }
  if (!InRange(outline.batch, outline.values.size()) || !InRange(outline.loss, outline.values.size())) {
    return absl::InvalidArgumentError("the outline names no batch or no loss value");
  }
  return absl::OkStatus();
}

absl::Status CheckOperands(const Outline& outline, const Program& program, int i) {
  const Instruction& instruction = program.instructions[i];
  const size_t targets = NumTargets(outline, instruction.opcode);
  if (targets == 0 ? instruction.target != -1 : !InRange(instruction.target, targets)) {
    return Refusal(outline, program).Of(i, absl::StrCat("has no target ", instruction.target));
  }
  if (instruction.opcode == Opcode::kLoadBatch && instruction.target != outline.batch) {
    return Refusal(outline, program).Of(i, "loads what is not the batch");
  }
  if (OfMicrobatch(instruction.opcode) ? !InRange(instruction.microbatch, program.num_microbatches)
                                       : instruction.microbatch != -1) {
    const std::string what = absl::StrCat("cannot be of microbatch ", instruction.microbatch);
    return IsLabel(instruction.opcode) ? Refusal(outline, program).ByHygiene(hygiene::kLabel, i, what)
                                       : Refusal(outline, program).Of(i, what);
  }
  if (instruction.communicator != CommunicatorOf(instruction.opcode)) {
    return Refusal(outline, program)
        .ByHygiene(hygiene::kCommunicator, i,
                   absl::StrCat("has communicator ", ToText(instruction.communicator), " and needs ",
                                ToText(CommunicatorOf(instruction.opcode))));
  }
  for (const auto& check : {CheckSlots, CheckFlags, CheckWaits}) {
    if (absl::Status status = check(outline, program, i); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

std::string DescribeInstruction(const Outline& outline, const Program& program, int i) {
  return absl::StrCat(program.name, " ", i, " (", ToText(program.instructions[i], outline), ")");
}

}  // namespace tandem::schedules_v1
