// SPDX-License-Identifier: Apache-2.0
#include "trainer/directory_error.h"

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "platform/regular_file.h"
#include "trainer/failure.h"

namespace tandem::trainer {

void ThrowIfUnwritable(const std::string& what, const absl::Status& status) {
  if (status.ok()) {
    return;
  }
  const std::string problem = absl::StrCat("checkpoint.directory: ", what, ": ", status.message());
  if (absl::IsResourceExhausted(status)) {
    throw checkpoint::CheckpointError(
        absl::StrCat(problem, "; ", platform::RemedyOf(status), ", or use another folder"));
  }
  if (absl::IsOutOfRange(status)) {
    throw checkpoint::CheckpointError(absl::StrCat(problem, "; ", platform::RemedyOf(status)));
  }
  // As EIO, ETIMEDOUT and ESTALE come (platform/regular_file.h).
  if (absl::IsUnknown(status) || absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) {
    throw checkpoint::CheckpointError(
        absl::StrCat(problem, "; that file system fails: start again when it works, or use another folder"));
  }
  throw UserError(absl::StrCat(problem, "; correct that, or use another folder"));
}

}  // namespace tandem::trainer
