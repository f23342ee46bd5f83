#include "schedules_v1/checker.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "schedules_v1/access.h"
#include "schedules_v1/arena_order.h"
#include "schedules_v1/effects.h"
#include "schedules_v1/hygiene.h"
#include "schedules_v1/lifetimes.h"
#include "schedules_v1/operands.h"
#include "schedules_v1/ordering.h"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {
namespace {

// An instruction of one of the programs.
struct User {
  const Program* program = nullptr;
  int instruction = -1;
};

// By communicator, an instruction that uses it; of all programs, since a communicator keeps its stream.
using Users = std::array<User, kNumCommunicators>;

class ProgramChecker {
 public:
  ProgramChecker(const Outline& outline, const Program& program, Users& users)
      : outline_(outline),
        program_(program),
        users_(users),
        table_(outline, {&program}),
        history_(table_.num_resources()),
        lifetimes_(outline, program),
        arena_(outline, program) {}

  absl::Status Run() {
    for (int i = 0; i < static_cast<int>(program_.instructions.size()); ++i) {
      if (absl::Status status = CheckOperands(outline_, program_, i); !status.ok()) {
        return status;
      }
      if (absl::Status status = CheckCommunicator(i); !status.ok()) {
        return status;
      }
      // Lifetimes first: "used after its release" says more than "not ordered after its release".
      if (absl::Status status = lifetimes_.Apply(i); !status.ok()) {
        return status;
      }
      if (absl::Status status = CheckOrder(i); !status.ok()) {
        return status;
      }
    }
    return lifetimes_.End();
  }

 private:
  absl::Status CheckOrder(int i) {
    const Instruction& instruction = program_.instructions[i];
    Clock start = clocks_.now(instruction.stream);
    for (const int wait : instruction.waits) {
      if (IsDone(wait, start)) {
        return RefusedByHygiene(hygiene::kKnownWait,
                                absl::StrCat(Describe(i), " waits for ", Describe(wait),
                                             ", which it knows to be done without that"));
      }
      Join(start, clocks_.end(wait));
    }
    table_.Effects(instruction, program_.num_microbatches, effects_);
    for (const Effect& effect : effects_) {
      int unordered = -1;
      history_.ForEachConflict(effect, [&](const Touch& touch) {
        if (touch.place > start[touch.stream]) {
          unordered = touch.instruction;
        }
      });
      if (unordered >= 0) {
        const std::string race =
            absl::StrCat(Describe(i), " and ", Describe(unordered), " both touch ",
                         table_.Name(effect.resource), ", and nothing makes the first wait for the second");
        return IsUnusedGather(i) || IsUnusedGather(unordered) ? RefusedByHygiene(hygiene::kUnusedGather, race)
                                                              : absl::InvalidArgumentError(race);
      }
    }
    for (const int freed : arena_.Issue(i)) {
      if (!IsDone(freed, start)) {
        return absl::InvalidArgumentError(
            absl::StrCat(Describe(i), " is handed memory that ", Describe(freed),
                         " gave back, and nothing makes the first wait for the second"));
      }
    }
    const int place = clocks_.Issue(instruction.stream, start);
    for (const Effect& effect : effects_) {
      history_.Record(effect, {static_cast<int>(instruction.stream), place, i});
    }
    return absl::OkStatus();
  }

  // Whether who knows `clock` knows that an earlier instruction is done.
  bool IsDone(int earlier, const Clock& clock) const {
    const int stream = static_cast<int>(program_.instructions[earlier].stream);
    return clocks_.end(earlier)[stream] <= clock[stream];
  }

  bool IsUnusedGather(int i) const {
    const std::vector<Instruction>& instructions = program_.instructions;
    const UnitId unit = instructions[i].target;
    if (instructions[i].opcode != Opcode::kUnshard) {
      return false;
    }
    for (size_t k = static_cast<size_t>(i) + 1; k < instructions.size(); ++k) {
      if (instructions[k].opcode == Opcode::kUnshard && instructions[k].target == unit) {
        return true;
      }
      if (TargetsNode(instructions[k].opcode) &&
          std::any_of(instructions[k].slots.begin(), instructions[k].slots.end(), [&](const SlotUse& slot) {
            return slot.role == SlotRole::kParameters && slot.unit == unit;
          })) {
        return false;
      }
    }
    return true;
  }

  absl::Status CheckCommunicator(int i) {
    const Instruction& instruction = program_.instructions[i];
    if (instruction.communicator == Communicator::kNone) {
      return absl::OkStatus();
    }
    User& user = users_[static_cast<int>(instruction.communicator)];
    if (user.program != nullptr) {
      const Instruction& other = user.program->instructions[user.instruction];
      if (other.stream != instruction.stream) {
        return RefusedByHygiene(
            hygiene::kCommunicatorStream,
            absl::StrCat(Describe(i), " uses communicator ", ToText(instruction.communicator), " on stream ",
                         ToText(instruction.stream), ", ",
                         DescribeInstruction(outline_, *user.program, user.instruction), " on stream ",
                         ToText(other.stream)));
      }
    }
    user = {&program_, i};
    return absl::OkStatus();
  }

  std::string Describe(int i) const { return DescribeInstruction(outline_, program_, i); }

  const Outline& outline_;
  const Program& program_;
  Users& users_;
  const EffectTable table_;
  AccessHistory history_;
  StreamClocks clocks_;
  Lifetimes lifetimes_;
  ArenaOrder arena_;
  std::vector<Effect> effects_;  // of the instruction at hand
};

}  // namespace

absl::Status CheckSequence(const Outline& outline, const std::vector<const Program*>& programs) {
  Users users;
  for (auto program = programs.begin(); program != programs.end(); ++program) {
    if (std::find(programs.begin(), program, *program) != program) {
      continue;
    }
    // The shape before any table is sized after it.
    if (absl::Status status = CheckShape(outline, **program); !status.ok()) {
      return status;
    }
    if (absl::Status status = ProgramChecker(outline, **program, users).Run(); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckProgram(const Outline& outline, const Program& program) {
  return CheckSequence(outline, {&program});
}

}  // namespace tandem::schedules_v1
