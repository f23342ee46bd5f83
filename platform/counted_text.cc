// SPDX-License-Identifier: Apache-2.0
#include "platform/counted_text.h"

#include "absl/strings/str_cat.h"

namespace tandem::platform {

std::string CountedText(int64_t count, absl::string_view thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

}  // namespace tandem::platform
