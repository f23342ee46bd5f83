// SPDX-License-Identifier: Apache-2.0
#include "data/held_out.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/check.h"

namespace tandem::data {

std::string RootOf(const std::string& pattern) {
  std::error_code error;
  if (std::filesystem::is_directory(pattern, error)) {
    return pattern.ends_with('/') ? pattern : pattern + "/";
  }
  const bool literal = std::filesystem::exists(pattern, error);
  const size_t wildcard = literal ? std::string::npos : pattern.find_first_of("*?[\\");
  const size_t slash = pattern.rfind('/', wildcard);
  return slash == std::string::npos ? "" : pattern.substr(0, slash + 1);
}

std::string NameBelow(const std::string& root, const std::string& path) {
  return path.starts_with(root) ? path.substr(root.size()) : path;
}

std::vector<int64_t> HeldOutBytes(const std::vector<NamedSize>& files, double fraction) {
  TANDEM_CHECK(!files.empty(), "there is a file");
  int64_t total = 0;
  for (const NamedSize& file : files) {
    total += file.size;
  }
  const double wanted = static_cast<double>(total) * fraction;
  if (files.size() == 1) {
    return {std::llround(wanted)};
  }
  std::vector<int64_t> held(files.size());
  if (fraction <= 0) {
    return held;
  }
  // Takes files in the order of a hash, if a file brings the sum closer to the size that is wanted.
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < files.size(); ++i) {
    order.push_back({XXH3_64bits(files[i].name.data(), files[i].name.size()), i});
  }
  std::sort(order.begin(), order.end());
  double sum = 0;
  for (const auto& [hash, i] : order) {
    const double size = static_cast<double>(files[i].size);
    if (std::abs(sum + size - wanted) < std::abs(sum - wanted)) {
      held[i] = files[i].size;
      sum += size;
    }
  }
  if (sum == 0) {
    const auto [hash,
                smallest] = *std::min_element(order.begin(), order.end(), [&](const auto& a, const auto& b) {
      return std::make_pair(files[a.second].size, a.first) < std::make_pair(files[b.second].size, b.first);
    });
    held[smallest] = files[smallest].size;
  }
  return held;
}

int64_t HeldOutTokens(int64_t tokens, double fraction, int64_t sequence_length) {
  return std::min<int64_t>(std::llround(static_cast<double>(tokens) * fraction),
                           kMostHeldOutWindows * (sequence_length + 1));
}

std::optional<SharedFile> FindSharedFile(const std::vector<std::vector<FileOfText>>& texts) {
  std::map<std::pair<uint64_t, uint64_t>, size_t> first_texts;
  for (size_t text = 0; text < texts.size(); ++text) {
    std::set<size_t> same = {text};
    for (size_t file = 0; file < texts[text].size(); ++file) {
      const FileOfText& of = texts[text][file];
      const size_t first = first_texts.emplace(std::pair(of.device, of.inode), text).first->second;
      if (same.contains(first)) {
        continue;
      }
      if (texts[first] != texts[text]) {
        return SharedFile{.first = first, .second = text, .file = file};
      }
      same.insert(first);
    }
  }
  return std::nullopt;
}

std::string SharedFileText(const std::string& field, const std::string& path, const std::string& first) {
  return absl::StrCat(field, ": ", path, " is also a file of ", first,
                      ", and what is held out of the one would be trained on through the other; name other "
                      "files, name held-out text with data.validation, or set data.validation_fraction to 0");
}

}  // namespace tandem::data
