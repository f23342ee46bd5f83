#include "schedules/refusal.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "schedules/hygiene.h"
#include "schedules/operands.h"

namespace tandem::schedules {

std::string Refusal::Text(int i, absl::string_view what, int other, absl::string_view rest) const {
  return absl::StrCat(DescribeInstruction(outline_, program_, i), " ", what, other >= 0 ? " " : "",
                      other >= 0 ? DescribeInstruction(outline_, program_, other) : "", rest);
}

absl::Status Refusal::Of(int i, absl::string_view what, int other, absl::string_view rest) const {
  return absl::InvalidArgumentError(Text(i, what, other, rest));
}

absl::Status Refusal::ByHygiene(absl::string_view hygiene_rule, int i, absl::string_view what, int other,
                                absl::string_view rest) const {
  return RefusedByHygiene(hygiene_rule, Text(i, what, other, rest));
}

}  // namespace tandem::schedules
