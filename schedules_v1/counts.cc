#include "schedules_v1/counts.h"

namespace tandem::schedules_v1 {

std::vector<UnitCounts> CountCollectives(const Outline& outline, const Program& program) {
  std::vector<UnitCounts> counts(outline.units.size());
  for (const Instruction& instruction : program.instructions) {
    if (instruction.opcode == Opcode::kUnshard) {
      ++counts[instruction.target].gathers;
    } else if (instruction.opcode == Opcode::kReduceGradients) {
      ++counts[instruction.target].reductions;
    }
  }
  return counts;
}

WaitCounts CountWaits(const Program& program) {
  WaitCounts counts;
  for (const Instruction& instruction : program.instructions) {
    counts.instructions += instruction.waits.empty() ? 0 : 1;
    counts.waits += static_cast<int>(instruction.waits.size());
  }
  return counts;
}

}  // namespace tandem::schedules_v1
