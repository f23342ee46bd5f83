// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tandem::cli {

// What a check of this machine found.
struct Finding {
  enum class Level { kOk, kWarn, kFail };
  Level level = Level::kOk;
  std::string subject;  // "driver"
  std::string text;     // what is there; where it is not well: what follows, and what to do
};

}  // namespace tandem::cli
