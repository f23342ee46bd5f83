#include <algorithm>
#include <utility>

#include "schedules_v1/effects.h"
#include "schedules_v1/passes.h"

namespace tandem::schedules_v1 {
namespace {

// The slots of one role while a program is walked in issue order.
class SlotColouring {
 public:
  SlotColouring(SlotRole role, const std::vector<int64_t>& unit_bytes)
      : role_(role), open_(unit_bytes.size()) {
    for (const int64_t bytes : unit_bytes) {
      const auto found = std::find(bytes_.begin(), bytes_.end(), bytes);
      class_of_.push_back(static_cast<int>(found - bytes_.begin()));
      if (found == bytes_.end()) {
        bytes_.push_back(bytes);
      }
    }
    taken_.resize(bytes_.size());
  }

  bool is_open(UnitId unit) const { return open_[unit].index >= 0; }
  const SlotUse& slot(UnitId unit) const { return open_[unit]; }

  void Open(UnitId unit) {
    std::vector<bool>& taken = taken_[class_of_[unit]];
    const auto lowest = std::find(taken.begin(), taken.end(), false);
    const int index = static_cast<int>(lowest - taken.begin());
    if (lowest == taken.end()) {
      taken.push_back(true);
    } else {
      *lowest = true;
    }
    open_[unit] = {.role = role_, .unit = unit, .size_class = class_of_[unit], .index = index};
  }

  // Ends the lease; the slot stays taken until Free.
  SlotUse Close(UnitId unit) { return std::exchange(open_[unit], SlotUse{}); }

  void Free(const SlotUse& slot) { taken_[slot.size_class][slot.index] = false; }

  const std::vector<int64_t>& class_bytes() const { return bytes_; }
  std::vector<int> counts() const {
    std::vector<int> counts;
    for (const std::vector<bool>& taken : taken_) {
      counts.push_back(static_cast<int>(taken.size()));
    }
    return counts;
  }

 private:
  const SlotRole role_;
  std::vector<int64_t> bytes_;            // per class, in order of the first unit that has it
  std::vector<int> class_of_;             // per unit
  std::vector<std::vector<bool>> taken_;  // class → index
  std::vector<SlotUse> open_;             // per unit; index -1: no lease
};

}  // namespace

void AssignSlots(const Outline& outline, const std::vector<int64_t>& unit_parameter_slot_bytes,
                 const std::vector<int64_t>& unit_gradient_slot_bytes, Program& program) {
  SlotColouring parameters(SlotRole::kParameters, unit_parameter_slot_bytes);
  SlotColouring gradients(SlotRole::kGradients, unit_gradient_slot_bytes);
  SlotUse reducing;  // slot of the reduction that was issued last
  const auto free_reducing = [&] {
    if (const SlotUse slot = std::exchange(reducing, SlotUse{}); slot.index >= 0) {
      gradients.Free(slot);
    }
  };

  for (Instruction& instruction : program.instructions) {
    if (instruction.opcode == Opcode::kUnshard) {
      parameters.Open(instruction.target);
      instruction.slots = {parameters.slot(instruction.target)};
    } else if (instruction.opcode == Opcode::kReshard) {
      instruction.slots = {parameters.Close(instruction.target)};
      parameters.Free(instruction.slots.front());
    } else if (instruction.opcode == Opcode::kLoadBatch) {
      free_reducing();
    } else if (instruction.opcode == Opcode::kReduceGradients) {
      free_reducing();
      reducing = gradients.Close(instruction.target);
      instruction.slots = {reducing};
    } else if (TargetsNode(instruction.opcode)) {
      const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
      for (const UnitId unit : UnitsOf(access.parameters)) {
        instruction.slots.push_back(parameters.slot(unit));
      }
      for (const UnitId unit : UnitsOf(access.parameter_gradients)) {
        if (!gradients.is_open(unit)) {
          gradients.Open(unit);
        }
        instruction.slots.push_back(gradients.slot(unit));
      }
    }
  }
  program.parameter_slot_bytes = parameters.class_bytes();
  program.parameter_slots = parameters.counts();
  program.gradient_slot_bytes = gradients.class_bytes();
  program.gradient_slots = gradients.counts();
}

}  // namespace tandem::schedules_v1
