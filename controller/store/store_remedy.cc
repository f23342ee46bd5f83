// SPDX-License-Identifier: Apache-2.0
#include "controller/store/store_remedy.h"

#include "absl/strings/str_cat.h"

namespace tandem::controller {

absl::Status WithRemedy(const absl::Status& status, absl::string_view of_damage) {
  const absl::string_view remedy =
      absl::IsDataLoss(status)            ? of_damage
      : absl::IsResourceExhausted(status) ? "make room on its file system, or give another --state"
      : absl::IsPermissionDenied(status)  ? "let this user write it, or give another --state"
                                          : "";
  return absl::Status(status.code(), absl::StrCat(status.message(), remedy.empty() ? "" : "; ", remedy));
}

}  // namespace tandem::controller
