#include "schedules/checker.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "schedules/arena_order.h"
#include "schedules/effects.h"
#include "schedules/hygiene.h"
#include "schedules/lifetimes.h"
#include "schedules/operands.h"
#include "schedules/ordering.h"
#include "schedules/text.h"

namespace tandem::schedules {
namespace {

class SequenceChecker {
 public:
  SequenceChecker(const Outline& outline, const std::vector<const Program*>& programs)
      : outline_(outline), programs_(programs), table_(outline, programs), history_(table_.num_resources()) {
    user_.fill(-1);
  }

  absl::Status Run() {
    for (const Program* program : programs_) {
      begins_.push_back(next_);
      if (const absl::Status status = RunProgram(*program); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status RunProgram(const Program& program) {
    clocks_.Seam();
    Lifetimes lifetimes(outline_, program);
    ArenaOrder arena(outline_, program);
    std::vector<Effect> effects;
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i, ++next_) {
      const Instruction& instruction = program.instructions[i];
      if (absl::Status status = CheckOperands(outline_, program, i); !status.ok()) {
        return status;
      }
      if (absl::Status status = CheckCommunicator(instruction); !status.ok()) {
        return status;
      }
      // Lifetimes first: "used after its release" says more than "not ordered after its release".
      if (absl::Status status = lifetimes.Apply(i); !status.ok()) {
        return status;
      }
      Clock start = clocks_.now(instruction.stream);
      for (const int wait : instruction.waits) {
        const int stream = static_cast<int>(program.instructions[wait].stream);
        if (clocks_.end(wait)[stream] <= start[stream]) {
          return RefusedByHygiene(hygiene::kKnownWait,
                                  absl::StrCat(Describe(next_), " waits for ", Describe(begins_.back() + wait),
                                               ", which it knows to be done without that"));
        }
        Join(start, clocks_.end(wait));
      }
      table_.Effects(instruction, program.num_microbatches, effects);
      for (const Effect& effect : effects) {
        int unordered = -1;
        history_.ForEachConflict(effect, [&](const Touch& touch) {
          if (touch.place > start[touch.stream]) {
            unordered = touch.instruction;
          }
        });
        if (unordered >= 0) {
          return absl::InvalidArgumentError(absl::StrCat(
              Describe(next_), " and ", Describe(unordered), " both touch ", table_.Name(effect.resource),
              ", and nothing makes the first wait for the second"));
        }
      }
      for (const int freed : arena.Issue(i)) {
        const int stream = static_cast<int>(program.instructions[freed].stream);
        if (clocks_.end(freed)[stream] > start[stream]) {
          return absl::InvalidArgumentError(absl::StrCat(
              Describe(next_), " is handed memory that ", Describe(begins_.back() + freed),
              " gave back, and nothing makes the first wait for the second"));
        }
      }
      const int place = clocks_.Issue(instruction.stream, start);
      for (const Effect& effect : effects) {
        history_.Record(effect, {static_cast<int>(instruction.stream), place, next_});
      }
    }
    return lifetimes.End();
  }

  absl::Status CheckCommunicator(const Instruction& instruction) {
    int& user = user_[static_cast<int>(instruction.communicator)];
    if (instruction.communicator != Communicator::kNone) {
      if (user >= 0 && At(user).stream != instruction.stream) {
        return RefusedByHygiene(hygiene::kCommunicatorStream, absl::StrCat(
            Describe(next_), " uses communicator ", ToText(instruction.communicator), " on stream ",
            ToText(instruction.stream), ", ", Describe(user), " on stream ", ToText(At(user).stream)));
      }
      user = next_;
    }
    return absl::OkStatus();
  }

  int ProgramOf(int global) const {
    return static_cast<int>(std::upper_bound(begins_.begin(), begins_.end(), global) - begins_.begin()) - 1;
  }
  const Instruction& At(int global) const {
    const int p = ProgramOf(global);
    return programs_[p]->instructions[global - begins_[p]];
  }
  std::string Describe(int global) const {
    const int p = ProgramOf(global);
    return DescribeInstruction(outline_, *programs_[p], global - begins_[p]);
  }

  const Outline& outline_;
  const std::vector<const Program*>& programs_;
  const EffectTable table_;
  AccessHistory history_;
  StreamClocks clocks_;
  std::array<int, kNumCommunicators> user_;  // communicator → instruction that used it last
  std::vector<int> begins_;  // global index of each program's first instruction
  int next_ = 0;             // global index
};

}  // namespace

absl::Status CheckSequence(const Outline& outline, const std::vector<const Program*>& programs) {
  for (const Program* program : programs) {
    // Before any table is sized after it.
    if (absl::Status status = CheckShape(outline, *program); !status.ok()) {
      return status;
    }
  }
  return SequenceChecker(outline, programs).Run();
}

absl::Status CheckProgram(const Outline& outline, const Program& program) {
  return CheckSequence(outline, {&program, &program});
}

}  // namespace tandem::schedules
