// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "platform/regular_file.h"

namespace tandem::trainer {

// Appends `text` to a file that was opened with O_APPEND, in one write(2): all of it, or nothing where it
// fails, as on a full disk. DataLoss where a part of it stays. The error names no path.
absl::Status AppendWhole(const platform::Descriptor& file, std::string_view text);

}  // namespace tandem::trainer
