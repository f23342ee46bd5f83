// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::data {

// Decides which part of a job's text is held out, from names and sizes alone. So the check of a job's spec
// can decide it before any text is read, and the trainer decides the same.

// The prefix, with its slash, that names are relative to: the folder, or the path up to the last slash before
// a wildcard.
std::string RootOf(const std::string& pattern);

// The path without its root, if it is below the root.
std::string NameBelow(const std::string& root, const std::string& path);

struct NamedSize {
  std::string name;  // relative to the root
  int64_t size = 0;  // bytes, more than 0
};

// How many bytes at the end of each file are held out. Of a single file, these are `fraction` of its bytes.
// Of several files, each is held out as a whole or not at all: about `fraction` of the sum, and at least one
// file if the fraction is not 0. Requires at least one file.
std::vector<int64_t> HeldOutBytes(const std::vector<NamedSize>& files, double fraction);

// Of a text of tokens, the last HeldOutTokens tokens are looked at: `fraction` of the text, but at most
// kMostHeldOutWindows windows. The held-out part begins at the first document that begins within them; at the
// first of them if the text is not divided into documents.
inline constexpr int64_t kMostHeldOutWindows = int64_t{1} << 20;
int64_t HeldOutTokens(int64_t tokens, double fraction, int64_t sequence_length);

// Advice for a job whose text marks which targets count, if the job's rows cannot hold the marks
// (RowOptions::has_targets in loader.h).
inline constexpr char kSayTargets[] =
    "set training: {validate_every_steps: more than 0} beside text that is held out, or data: "
    "{count_first_token: false}";

struct FileOfText {
  uint64_t device = 0;
  uint64_t inode = 0;
  std::string name;  // relative to the root
  bool operator==(const FileOfText&) const = default;
};

struct SharedFile {
  size_t first = 0;  // indices of the texts
  size_t second = 0;
  size_t file = 0;  // index of the file in the second text
};

// Finds a file that two texts share although the rest of their files is not the same: what is held out from
// one text might then be trained on through the other. Texts with exactly the same files are allowed.
std::optional<SharedFile> FindSharedFile(const std::vector<std::vector<FileOfText>>& texts);

// The error about a shared file: `path` in the text of the field `field`, which is also in the text of the
// field `first`.
std::string SharedFileText(const std::string& field, const std::string& path, const std::string& first);

}  // namespace tandem::data
