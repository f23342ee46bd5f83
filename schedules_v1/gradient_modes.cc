#include "schedules_v1/effects.h"
#include "schedules_v1/passes.h"

namespace tandem::schedules_v1 {

void ChooseGradientModes(const Outline& outline, Program& program) {
  std::vector<std::vector<bool>> part_written;  // unit → part, in the lease that is open
  for (const Unit& unit : outline.units) {
    part_written.emplace_back(unit.parts.size(), false);
  }
  std::vector<bool> shard_written(outline.units.size(), false);
  std::vector<bool> value_written(outline.values.size() * program.num_microbatches, false);

  const auto was_written = [](std::vector<bool>::reference written) {
    const bool before = written;
    written = true;
    return before;
  };
  for (Instruction& instruction : program.instructions) {
    if (instruction.opcode == Opcode::kReduceGradients) {
      instruction.add_parameter_gradients = {was_written(shard_written[instruction.target])};
      part_written[instruction.target].assign(part_written[instruction.target].size(), false);
    } else if (TargetsNode(instruction.opcode)) {
      const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
      for (const UnitPart& part : access.parameter_gradients) {
        instruction.add_parameter_gradients.push_back(was_written(part_written[part.unit][part.part]));
      }
      const size_t begin = instruction.microbatch * outline.values.size();
      for (const ValueId value : access.gradient_writes) {
        instruction.add_value_gradients.push_back(was_written(value_written[begin + value]));
      }
    }
  }
}

}  // namespace tandem::schedules_v1
