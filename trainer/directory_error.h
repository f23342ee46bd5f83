// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tandem::trainer {

// Throws if `status` is an error of a job's own files in checkpoint.directory. `what` says what failed ("rank
// 0 cannot write there"), and `status` names the file. Throws checkpoint::CheckpointError if the job is not
// to blame: the disk has no room or fails (EIO, ESTALE), or too many files are open. Otherwise throws
// UserError. Both messages say what to do.
void ThrowIfUnwritable(const std::string& what, const absl::Status& status);

}  // namespace tandem::trainer
