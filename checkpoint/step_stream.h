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

// Takes the bytes of some elements of wanted array number `wanted`, the first of which has index `first` in
// the whole array. The bytes are valid until it returns. Several threads call it at once. An error ends the
// stream.
using TakeElements = std::function<absl::Status(size_t wanted, int64_t first, std::string_view bytes)>;

// Reads every file of a step once, from beginning to end, and compares its digest with the manifest's. If the
// manifest has a digest of each piece of the wanted arrays, only these pieces are read and compared. Wanted
// arrays come from SavedStep::Find; null: the step has none.
//
// Four threads read, each a file or piece of its own, of which it has 8 MB in memory. `take` gets each
// element of the wanted arrays once, in no order, before it is known whether what was read is whole. Returns
// an error of `take`, an error of a file as VerifiedBytes does, or Unavailable if a file has changed since
// SavedStep::Open.
absl::Status StreamStep(platform::Files& files, const SavedStep& step,
                        const std::vector<const ManifestArray*>& wanted, const TakeElements& take);

}  // namespace tandem::checkpoint
