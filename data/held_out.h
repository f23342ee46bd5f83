// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::data {

// Which text of a job is held out, from names and sizes alone: a job's spec is checked by it before any text
// is read, and the trainer reads by it.

// What names are relative to, with its slash: the folder, or what precedes the last slash before a wildcard.
std::string RootOf(const std::string& pattern);

// A path without its root, where it is below that.
std::string NameBelow(const std::string& root, const std::string& path);

struct NamedSize {
  std::string name;  // below the root
  int64_t size = 0;  // bytes, more than 0
};

// How many bytes at the end of each file are held out: of a single file the share, of several all or none,
// about the share of their sum, at least one file where the share is not 0. Requires a file.
std::vector<int64_t> HeldOutBytes(const std::vector<NamedSize>& files, double fraction);

// How many of a text's tokens are held out before the end of a document moves that: about that share, of at
// most kMostHeldOutWindows.
inline constexpr int64_t kMostHeldOutWindows = int64_t{1} << 20;
int64_t HeldOutTokens(int64_t tokens, double fraction, int64_t sequence_length);

// What to do about text that says which tokens count as targets, in a job whose rows do not.
inline constexpr char kSayTargets[] =
    "set training: {validate_every_steps: more than 0} beside text that is held out, or data: "
    "{count_first_token: false}";

struct FileOfText {
  uint64_t device = 0;
  uint64_t inode = 0;
  std::string name;  // below the root
  bool operator==(const FileOfText&) const = default;
};

struct SharedFile {
  size_t first = 0;  // numbers of texts
  size_t second = 0;
  size_t file = 0;  // of the second text
};

// A file of two texts that have not the same files: what is held out of the one may be trained on through the
// other.
std::optional<SharedFile> FindSharedFile(const std::vector<std::vector<FileOfText>>& texts);

}  // namespace tandem::data
