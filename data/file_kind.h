// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::data {

// The first bytes of a file, and the size of the whole file.
struct Beginning {
  std::string bytes;
  int64_t file_bytes = 0;
};

// Reads the first `most` bytes of a regular file, or all of it if it is shorter. Errors are those of
// platform::FileError.
absl::StatusOr<Beginning> ReadBeginning(const std::string& path, int64_t most);

// Recognises files whose bytes are not text to train on, by their name and first bytes (16 are enough; may be
// empty). Returns the kind, such as "a gzip file", or an empty string if the file may be text.
std::string KindOfNoText(std::string_view name, std::string_view beginning);

// Advice to the user about files that KindOfNoText recognises.
inline constexpr char kPrepareIt[] =
    "its bytes are not the text: make tokens of it with tandem data prepare and train on the folder that "
    "this makes, or name only the files that are text with a glob";

}  // namespace tandem::data
