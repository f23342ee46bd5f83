// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "checkpoint/manifest.h"
#include "checkpoint/saved_step.h"
#include "platform/files.h"

namespace tandem::checkpoint {

// Elements of the whole of wanted array `wanted`, from `first` on: their bytes, which are valid until this
// returns. Called by several threads at once. An error ends the stream.
using TakeElements = std::function<absl::Status(size_t wanted, int64_t first, std::string_view bytes)>;

// Reads every file of a step once, from its beginning to its end, and compares its digest with the
// manifest's; if the manifest has a digest of each piece of the wanted arrays (of SavedStep::Find; null:
// none), and there are such, it reads and compares these alone. Four threads read, each another file or
// piece, and 1 MB of it is in memory. `take` gets the elements of the wanted arrays each once, in no order,
// before it is known whether what was read is whole. Returns its error; that of a file as VerifiedBytes has
// it; Unavailable where a file is not what SavedStep::Open read.
absl::Status StreamStep(platform::Files& files, const SavedStep& step,
                        const std::vector<const ManifestArray*>& wanted, const TakeElements& take);

}  // namespace tandem::checkpoint
