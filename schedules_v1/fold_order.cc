#include "schedules_v1/fold_order.h"

#include "absl/strings/str_cat.h"

namespace tandem::schedules_v1 {
namespace {

bool IsHalf(Opcode opcode) { return opcode == Opcode::kBackwardInput || opcode == Opcode::kBackwardWeight; }

}  // namespace

absl::Status CheckFoldOrder(const Program& program, const Refusal& refuse, int i, int before,
                            absl::string_view name) {
  if (before < 0 || before == i) {
    return absl::OkStatus();
  }
  const Instruction& earlier = program.instructions[before];
  const Instruction& later = program.instructions[i];
  if (later.target > earlier.target) {
    return refuse.Of(i, absl::StrCat("adds to the gradient of ", name, " after"), before,
                     ", but contributions are added in the reverse order of the nodes");
  }
  const bool two_halves = IsHalf(earlier.opcode) && IsHalf(later.opcode) && earlier.opcode != later.opcode;
  if (later.target == earlier.target && !two_halves) {
    return refuse.Of(i, absl::StrCat("contributes to the gradient of ", name, " a second time, after"),
                     before);
  }
  return absl::OkStatus();
}

}  // namespace tandem::schedules_v1
