// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/check_without.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "schedules/check/check.h"
#include "schedules/program/text.h"

namespace tandem::cli {
namespace {

using schedules::Program;

constexpr size_t kMostNamed = 12;

std::string Waiting(const Program& program) {
  std::vector<int> waiting;
  for (size_t i = 0; i < program.instructions.size() && waiting.size() <= kMostNamed; ++i) {
    if (!program.instructions[i].waits.empty()) {
      waiting.push_back(static_cast<int>(i));
    }
  }
  const bool more = waiting.size() > kMostNamed;
  if (more) {
    waiting.pop_back();
  }
  return absl::StrCat(absl::StrJoin(waiting, ", "), more ? ", …" : "");
}

std::string Describe(const plan::JobPlan& plan, int i) {
  return absl::StrCat(i, " (", schedules::ToText(plan.stage.train.instructions[i], plan.outline), ")");
}

absl::Status CheckIndex(const Program& program, int instruction) {
  const int size = static_cast<int>(program.instructions.size());
  return instruction >= 0 && instruction < size
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat("the train program has instructions 0 to ", size - 1));
}

CheckAnswer Check(const plan::JobPlan& plan, const schedules::StagePrograms& stage,
                  const std::string& missing, const std::string& accepted) {
  const absl::Status status = schedules::CheckStage(plan.outline, plan.options, stage);
  return {.refused = !status.ok(),
          .text = absl::StrCat(missing, "\n",
                               status.ok() ? absl::StrCat("accepted: ", accepted)
                                           : absl::StrCat("refused: ", status.message()),
                               "\n")};
}

// Removes the instruction. What waited for it, and the next one of its stream, wait for what it waited for,
// so that nothing else is missing.
void Remove(int removed, Program& program) {
  const std::vector<schedules::Wait> inherited = program.instructions[removed].waits;
  const schedules::StreamId stream = program.instructions[removed].stream;
  program.instructions.erase(program.instructions.begin() + removed);
  bool next_of_stream = true;
  for (size_t i = removed; i < program.instructions.size(); ++i) {
    schedules::Instruction& instruction = program.instructions[i];
    std::vector<schedules::Wait> waits;
    bool inherits = next_of_stream && instruction.stream == stream;
    next_of_stream = next_of_stream && !inherits;
    for (const schedules::Wait& wait : instruction.waits) {
      if (wait.instruction == removed) {
        inherits = true;
      } else {
        waits.push_back({wait.instruction - (wait.instruction > removed), wait.frees});
      }
    }
    if (inherits) {
      waits.insert(waits.end(), inherited.begin(), inherited.end());
    }
    // All earlier instructions of its own stream are ordered already.
    std::erase_if(waits, [&](const schedules::Wait& wait) {
      return program.instructions[wait.instruction].stream == instruction.stream;
    });
    instruction.waits = std::move(waits);
  }
}

}  // namespace

absl::StatusOr<CheckAnswer> CheckWithoutWait(const plan::JobPlan& plan, int instruction) {
  schedules::StagePrograms stage = plan.stage;
  if (const absl::Status exists = CheckIndex(stage.train, instruction); !exists.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(exists.message(), "; these wait: ", Waiting(stage.train)));
  }
  const std::vector<schedules::Wait> waits = std::exchange(stage.train.instructions[instruction].waits, {});
  if (waits.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(plan, instruction), " waits for nothing; these wait: ", Waiting(stage.train)));
  }
  const std::string missing =
      absl::StrCat(Describe(plan, instruction), " no longer waits for ",
                   absl::StrJoin(waits, " and ", [&](std::string* out, const schedules::Wait& wait) {
                     absl::StrAppend(out, Describe(plan, wait.instruction));
                   }));
  return Check(plan, stage, missing, "other waits order the same");
}

absl::StatusOr<CheckAnswer> CheckWithoutInstruction(const plan::JobPlan& plan, int instruction) {
  schedules::StagePrograms stage = plan.stage;
  TANDEM_RETURN_IF_ERROR(CheckIndex(stage.train, instruction));
  Remove(instruction, stage.train);
  return Check(plan, stage,
               absl::StrCat(Describe(plan, instruction),
                            " is no longer in the program, and those after it move up by one"),
               "the program means the same without it");
}

}  // namespace tandem::cli
