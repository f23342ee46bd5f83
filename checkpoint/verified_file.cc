// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verified_file.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"

namespace tandem::checkpoint {

absl::Status VerifiedFile::Next(std::string& part) {
  part = std::string();  // before there is another
  const int64_t wanted = std::min(platform::kFilePartBytes, file_.bytes - read_);
  absl::StatusOr<std::string> next = files_.ReadRange(absl::StrCat(path_, "/", file_.name), read_, wanted);
  if (!next.ok()) {
    return absl::UnavailableError(next.status().message());
  }
  read_ += static_cast<int64_t>(next->size());
  if (static_cast<int64_t>(next->size()) < wanted) {
    return absl::UnavailableError(absl::StrCat(file_.name, ": it ends at byte ", read_, ", and should have ",
                                               file_.bytes, ", as it had before"));
  }
  digest_.Add(*next);
  part = *std::move(next);
  done_ = read_ == file_.bytes;
  if (done_ && digest_.Get() != file_.digest) {
    return absl::InvalidArgumentError(absl::StrCat(file_.name, ": its digest does not match the manifest"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
