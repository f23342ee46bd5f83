// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verified_bytes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/manifest.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {

DigestedBytes AllOf(const ManifestFile& file) {
  return {.file = file.name, .end = file.bytes, .digest = file.digest};
}

absl::Status VerifiedBytes::Next(std::string& part) {
  std::string().swap(part);  // its memory is given back before there is another
  TANDEM_ASSIGN_OR_RETURN(part, Read());
  return Verify(part);
}

absl::StatusOr<std::string> VerifiedBytes::Read() {
  const int64_t wanted = std::min(platform::kFilePartBytes, wanted_.end - read_);
  absl::StatusOr<std::string> next = files_.ReadRange(absl::StrCat(path_, "/", wanted_.file), read_, wanted);
  if (!next.ok()) {
    return absl::UnavailableError(next.status().message());
  }
  read_ += static_cast<int64_t>(next->size());
  if (static_cast<int64_t>(next->size()) < wanted) {
    return absl::UnavailableError(
        absl::StrCat(wanted_.file, ": it ends at byte ", read_, ", and should have ",
                     wanted_.tensor.empty() ? "" : "at least ", wanted_.end, ", as it had before"));
  }
  read_all_ = read_ == wanted_.end;
  return next;
}

absl::Status VerifiedBytes::Verify(const std::string& part) {
  digest_.Add(part);
  verified_ += static_cast<int64_t>(part.size());
  done_ = verified_ == wanted_.end;
  if (done_ && digest_.Get() != wanted_.digest) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted_.file, ": ",
                     wanted_.tensor.empty() ? "its digest" : absl::StrCat("the digest of ", wanted_.tensor),
                     " does not match the manifest"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
