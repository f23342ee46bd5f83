// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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

}  // namespace tandem::data
