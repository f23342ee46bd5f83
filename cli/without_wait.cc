#include "cli/without_wait.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "schedules/check/check.h"
#include "schedules/program/text.h"

namespace tandem::cli {
namespace {

constexpr size_t kMostNamed = 12;

std::string Waiting(const schedules::Program& program) {
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

}  // namespace

absl::StatusOr<WithoutWait> CheckWithoutWait(const plan::JobPlan& plan, int instruction) {
  schedules::StagePrograms stage = plan.stage;
  schedules::Program& program = stage.train;
  const auto describe = [&](int i) {
    return absl::StrCat(i, " (", schedules::ToText(program.instructions[i], plan.outline), ")");
  };
  if (instruction < 0 || instruction >= static_cast<int>(program.instructions.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the train program has instructions 0 to ",
                                                   program.instructions.size() - 1,
                                                   "; these wait: ", Waiting(program)));
  }
  const std::vector<schedules::Wait> waits = std::exchange(program.instructions[instruction].waits, {});
  if (waits.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(describe(instruction), " waits for nothing; these wait: ", Waiting(program)));
  }
  const std::string removed = absl::StrCat(describe(instruction), " no longer waits for ",
                                           absl::StrJoin(waits, " and ",
                                                         [&](std::string* out, const schedules::Wait& wait) {
                                                           absl::StrAppend(out, describe(wait.instruction));
                                                         }),
                                           "\n");
  const absl::Status status = schedules::CheckStage(plan.outline, plan.options, stage);
  return WithoutWait{
      .refused = !status.ok(),
      .text = absl::StrCat(removed, status.ok() ? "accepted: other waits order the same\n"
                                                : absl::StrCat("refused: ", status.message(), "\n"))};
}

}  // namespace tandem::cli
