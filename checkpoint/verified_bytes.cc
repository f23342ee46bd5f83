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

absl::Status VerifiedBytes::Next(std::string& part, int64_t most_bytes) {
  std::string().swap(part);  // its memory is given back before there is another
  const int64_t wanted = std::min(most_bytes, wanted_.end - read_);
  absl::StatusOr<std::string> next = files_.ReadRange(absl::StrCat(path_, "/", wanted_.file), read_, wanted);
  if (!next.ok()) {
    return absl::UnavailableError(next.status().message());
  }
  part = *std::move(next);
  read_ += static_cast<int64_t>(part.size());
  if (static_cast<int64_t>(part.size()) < wanted) {
    return absl::UnavailableError(
        absl::StrCat(wanted_.file, ": it ends at byte ", read_, ", and should have ",
                     wanted_.tensor.empty() ? "" : "at least ", wanted_.end, ", as it had before"));
  }
  digest_.Add(part);
  done_ = read_ == wanted_.end;
  if (done_ && digest_.Get() != wanted_.digest) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted_.file, ": ",
                     wanted_.tensor.empty() ? "its digest" : absl::StrCat("the digest of ", wanted_.tensor),
                     " does not match the manifest"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
