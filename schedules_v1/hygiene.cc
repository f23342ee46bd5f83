#include "schedules_v1/hygiene.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem::schedules_v1 {
namespace {

constexpr absl::string_view kBegin = " [hygiene: ";
constexpr absl::string_view kEnd = "]";

}  // namespace

absl::Status RefusedByHygiene(absl::string_view rule, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(message, kBegin, rule, kEnd));
}

absl::string_view HygieneRule(const absl::Status& status) {
  const absl::string_view message = status.message();
  const size_t begin = message.rfind(kBegin);
  if (begin == absl::string_view::npos || !absl::EndsWith(message, kEnd)) {
    return "";
  }
  const size_t name = begin + kBegin.size();
  return message.substr(name, message.size() - name - kEnd.size());
}

}  // namespace tandem::schedules_v1
