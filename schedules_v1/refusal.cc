#include "schedules_v1/refusal.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "schedules_v1/hygiene.h"
#include "schedules_v1/operands.h"

namespace tandem::schedules_v1 {

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

}  // namespace tandem::schedules_v1
