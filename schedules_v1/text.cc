#include "schedules_v1/text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "schedules_v1/effects.h"

namespace tandem::schedules_v1 {
namespace {

template <typename Named>
std::string NameOf(const std::vector<Named>& all, int index, absl::string_view what) {
  if (index < 0 || index >= static_cast<int>(all.size())) {
    return absl::StrCat(what, " ", index, "?");
  }
  return all[index].name;
}

std::string PartName(const Outline& outline, UnitPart part) {
  if (part.unit < 0 || part.unit >= static_cast<int>(outline.units.size())) {
    return absl::StrCat("unit ", part.unit, "?");
  }
  const Unit& unit = outline.units[part.unit];
  if (part.part < 0 || part.part >= static_cast<int>(unit.parts.size())) {
    return absl::StrCat(unit.name, ".", part.part, "?");
  }
  return unit.parts.size() == 1 ? unit.name : absl::StrCat(unit.name, ".", unit.parts[part.part]);
}

const SlotUse* FindSlot(const Instruction& instruction, SlotRole role, UnitId unit) {
  for (const SlotUse& slot : instruction.slots) {
    if (slot.role == role && slot.unit == unit) {
      return &slot;
    }
  }
  return nullptr;
}

void AppendField(std::string& line, absl::string_view key, const std::vector<std::string>& items) {
  if (!items.empty()) {
    absl::StrAppend(&line, "  ", key, " ", absl::StrJoin(items, " "));
  }
}

// Missing flags (a program before the pass that decides them) show as sets.
bool Flag(const std::vector<bool>& flags, size_t i) { return i < flags.size() && flags[i]; }

void AppendOperands(std::string& line, const Instruction& instruction, const Outline& outline) {
  std::vector<std::string> slots[2];  // by role
  for (const SlotUse& slot : instruction.slots) {
    slots[static_cast<int>(slot.role)].push_back(
        absl::StrCat(NameOf(outline.units, slot.unit, "unit"), "@", ToText(slot)));
  }
  AppendField(line, "params", slots[0]);

  std::vector<std::string> modes[2];  // sets, adds
  const int num_nodes = static_cast<int>(outline.nodes.size());
  if (!TargetsNode(instruction.opcode)) {
    AppendField(line, "grads", slots[1]);
    for (const bool add : instruction.add_parameter_gradients) {
      modes[add].push_back("shard");
    }
  } else if (instruction.target >= 0 && instruction.target < num_nodes) {
    const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
    for (size_t i = 0; i < access.parameter_gradients.size(); ++i) {
      const UnitPart part = access.parameter_gradients[i];
      const SlotUse* slot = FindSlot(instruction, SlotRole::kGradients, part.unit);
      modes[Flag(instruction.add_parameter_gradients, i)].push_back(
          absl::StrCat(PartName(outline, part), "@", slot == nullptr ? "?" : ToText(*slot)));
    }
    for (size_t i = 0; i < access.gradient_writes.size(); ++i) {
      modes[Flag(instruction.add_value_gradients, i)].push_back(
          absl::StrCat("d(", NameOf(outline.values, access.gradient_writes[i], "value"), ")"));
    }
  }
  AppendField(line, "sets", modes[0]);
  AppendField(line, "adds", modes[1]);
}

void AppendSlots(std::string& text, absl::string_view role, char letter, const std::vector<int64_t>& bytes,
                 const std::vector<int>& counts) {
  for (size_t i = 0; i < counts.size(); ++i) {
    absl::StrAppend(&text, "# ", role, " slots ", std::string(1, letter), i, ": ", counts[i], " x ", bytes[i],
                    " bytes\n");
  }
}

}  // namespace

const char* ToText(Opcode opcode) {
  switch (opcode) {
    case Opcode::kLoadBatch:
      return "load";
    case Opcode::kForward:
      return "forward";
    case Opcode::kBackward:
      return "backward";
    case Opcode::kBackwardInput:
      return "backward-input";
    case Opcode::kBackwardWeight:
      return "backward-weight";
    case Opcode::kUnshard:
      return "unshard";
    case Opcode::kReshard:
      return "reshard";
    case Opcode::kReduceGradients:
      return "reduce";
    case Opcode::kGradientNorm:
      return "gradient-norm";
    case Opcode::kOptimizerStep:
      return "optimizer";
    case Opcode::kReport:
      return "report";
    case Opcode::kSnapshot:
      return "snapshot";
    case Opcode::kRelease:
      return "release";
  }
  return "?";
}

const char* ToText(StreamKind stream) {
  switch (stream) {
    case StreamKind::kCompute:
      return "compute";
    case StreamKind::kGather:
      return "gather";
    case StreamKind::kReduce:
      return "reduce";
    case StreamKind::kDispatch:
      return "dispatch";
    case StreamKind::kSend:
      return "send";
  }
  return "?";
}

const char* ToText(Communicator communicator) {
  switch (communicator) {
    case Communicator::kNone:
      return "none";
    case Communicator::kGather:
      return "gather";
    case Communicator::kReduce:
      return "reduce";
    case Communicator::kNorm:
      return "norm";
  }
  return "?";
}

std::string ToText(const SlotUse& slot) {
  return absl::StrCat(slot.role == SlotRole::kParameters ? "p" : "g", slot.size_class, ".", slot.index);
}

std::string ToText(const Instruction& instruction, const Outline& outline) {
  std::string text(ToText(instruction.opcode));
  if (TargetsNode(instruction.opcode)) {
    absl::StrAppend(&text, " ", NameOf(outline.nodes, instruction.target, "node"));
  } else if (TargetsUnit(instruction.opcode)) {
    absl::StrAppend(&text, " ", NameOf(outline.units, instruction.target, "unit"));
  } else if (instruction.opcode == Opcode::kLoadBatch || instruction.opcode == Opcode::kRelease) {
    const std::string name = NameOf(outline.values, instruction.target, "value");
    absl::StrAppend(&text, " ", instruction.of_gradient ? absl::StrCat("d(", name, ")") : name);
  }
  if (instruction.microbatch >= 0) {
    absl::StrAppend(&text, " mb ", instruction.microbatch);
  }
  return text;
}

std::string ToText(const Program& program, const Outline& outline) {
  std::string text = absl::StrCat("# ", program.name, ": microbatches ", program.num_microbatches,
                                  ", instructions ", program.instructions.size(), "\n");
  AppendSlots(text, "parameter", 'p', program.parameter_slot_bytes, program.parameter_slots);
  AppendSlots(text, "gradient", 'g', program.gradient_slot_bytes, program.gradient_slots);
  const int width = static_cast<int>(absl::StrCat(program.instructions.size()).size());
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    std::string line =
        absl::StrFormat("%*d  %-8s %s", width, i, ToText(instruction.stream), ToText(instruction, outline));
    if (instruction.communicator != Communicator::kNone) {
      absl::StrAppend(&line, "  comm ", ToText(instruction.communicator));
    }
    AppendOperands(line, instruction, outline);
    std::vector<std::string> waits;
    for (const int wait : instruction.waits) {
      waits.push_back(absl::StrCat(wait));
    }
    AppendField(line, "waits", waits);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace tandem::schedules_v1
