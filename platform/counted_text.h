// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::platform {

// "1 worker", "2 workers". `thing` is an English noun with a plural in -s.
std::string CountedText(int64_t count, absl::string_view thing);

}  // namespace tandem::platform
