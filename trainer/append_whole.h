// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "platform/regular_file.h"

namespace tandem::trainer {

// Appends `text` to a file that was opened with O_APPEND, in one write(2). If that fails, as on a full disk,
// nothing is appended. If a part stays in the file, `torn_at` is set to the length of the file before it; the
// next call first cuts the file there, and appends nothing while that fails. The error names no path.
absl::Status AppendWhole(const platform::Descriptor& file, std::string_view text,
                         std::optional<off_t>& torn_at);

}  // namespace tandem::trainer
