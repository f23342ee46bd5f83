// SPDX-License-Identifier: Apache-2.0
#include "trainer/append_whole.h"

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::trainer {

absl::Status AppendWhole(const platform::Descriptor& file, std::string_view text,
                         std::optional<off_t>& torn_at) {
  // Somebody may have emptied the file to make room: then there is no part, and a cut would make it longer.
  if (torn_at.has_value() && lseek(file.get(), 0, SEEK_END) > *torn_at &&
      ftruncate(file.get(), *torn_at) != 0) {
    return absl::UnavailableError(
        absl::StrCat("a part of what was written last stays: ", std::strerror(errno)));
  }
  torn_at.reset();
  const off_t end = lseek(file.get(), 0, SEEK_END);
  const ssize_t written = write(file.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) {
    return absl::OkStatus();
  }
  const std::string error = written < 0 ? std::strerror(errno) : "short write";
  // What follows a part could not be read either. Cutting a file needs no space.
  if (written <= 0 || ftruncate(file.get(), end) == 0) {
    return absl::UnavailableError(error);
  }
  torn_at = end;
  return absl::UnavailableError(absl::StrCat(error, ", of which a part stays: ", std::strerror(errno)));
}

}  // namespace tandem::trainer
