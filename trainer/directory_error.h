// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tandem::trainer {

// An error of a start's own files in checkpoint.directory, as in "rank 0 cannot write there"; `status` names
// the file. Throws where it is one: checkpoint::CheckpointError where the disk has no room or fails (EIO,
// ESTALE), or too many files are open, for which the job is not to blame, else UserError. Both say what to
// do.
void ThrowIfUnwritable(const std::string& what, const absl::Status& status);

}  // namespace tandem::trainer
