#include "schedules_v1/effects.h"
#include "schedules_v1/passes.h"

namespace tandem::schedules_v1 {
namespace {

// Life of one value (or gradient) of one microbatch, as instructions of the program without releases.
struct Life {
  int first = -1;
  int last = -1;
};

// Calls visit(value, microbatch, of_gradient) for all values and gradients that the instruction touches.
template <typename Visit>
void ForEachValue(const Outline& outline, const Program& program, const Instruction& instruction,
                  Visit visit) {
  if (instruction.opcode == Opcode::kLoadBatch) {
    visit(instruction.target, instruction.microbatch, false);
  } else if (instruction.opcode == Opcode::kReport) {
    for (int microbatch = 0; microbatch < program.num_microbatches; ++microbatch) {
      visit(outline.loss, microbatch, false);
    }
  } else if (TargetsNode(instruction.opcode)) {
    const Access& access = AccessOf(outline.nodes[instruction.target], instruction.opcode);
    for (const auto* values : {&access.reads, &access.writes}) {
      for (const ValueId value : *values) {
        visit(value, instruction.microbatch, false);
      }
    }
    for (const auto* values : {&access.gradient_reads, &access.gradient_writes}) {
      for (const ValueId value : *values) {
        visit(value, instruction.microbatch, true);
      }
    }
  }
}

}  // namespace

void InsertReleases(const Outline& outline, Program& program) {
  const int num_values = static_cast<int>(outline.values.size());
  std::vector<Life> lives(static_cast<size_t>(2) * num_values * program.num_microbatches);
  const auto life_of = [&](ValueId value, int microbatch, bool of_gradient) -> Life& {
    return lives[(2 * microbatch + of_gradient) * num_values + value];
  };

  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    ForEachValue(outline, program, program.instructions[i],
                 [&](ValueId value, int microbatch, bool of_gradient) {
                   Life& life = life_of(value, microbatch, of_gradient);
                   life.first = life.first < 0 ? i : life.first;
                   life.last = i;
                 });
  }

  std::vector<Instruction> result;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[i];
    result.push_back(instruction);
    ForEachValue(outline, program, instruction, [&](ValueId value, int microbatch, bool of_gradient) {
      Life& life = life_of(value, microbatch, of_gradient);
      if (life.last == i) {
        result.push_back({.opcode = Opcode::kRelease,
                          .target = value,
                          .microbatch = microbatch,
                          .stream = program.instructions[life.first].stream,
                          .of_gradient = of_gradient});
        life.last = -1;  // once, where an access names a value twice
      }
    });
  }
  program.instructions = std::move(result);
}

}  // namespace tandem::schedules_v1
