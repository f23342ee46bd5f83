// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verified_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {

absl::Status VerifiedFile::Next(std::string& part) {
  std::string().swap(part);  // its memory is given back before there is another
  TANDEM_ASSIGN_OR_RETURN(part, Read());
  return Verify(part);
}

absl::StatusOr<std::string> VerifiedFile::Read() {
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
  read_all_ = read_ == file_.bytes;
  return next;
}

absl::Status VerifiedFile::Verify(const std::string& part) {
  digest_.Add(part);
  verified_ += static_cast<int64_t>(part.size());
  done_ = verified_ == file_.bytes;
  if (done_ && digest_.Get() != file_.digest) {
    return absl::InvalidArgumentError(absl::StrCat(file_.name, ": its digest does not match the manifest"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
