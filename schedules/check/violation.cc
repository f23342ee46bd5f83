// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/violation.h"

#include "absl/strings/str_cat.h"
#include "schedules/program/text.h"

namespace tandem::schedules {

absl::Status Violation(absl::string_view rule, const Program& program, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(rule, ": ", program.name, ": ", what));
}

absl::Status Violation(absl::string_view rule, const Outline& outline, const Program& program,
                       int instruction, absl::string_view what) {
  return Violation(rule, program, absl::StrCat(Describe(outline, program, instruction), " ", what));
}

std::string Describe(const Outline& outline, const Program& program, int instruction) {
  return absl::StrCat(instruction, " (", ToText(program.instructions[instruction], outline), ")");
}

}  // namespace tandem::schedules
