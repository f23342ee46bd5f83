// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>

namespace tandem::controller {

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// For each page of the database but the first: writes the file with only this page overwritten, and calls
// `look` with the file's content.
inline void DamageEachPage(const std::string& path,
                           const std::function<void(const std::string& damaged)>& look) {
  constexpr size_t kPage = 4096;
  const std::string whole = ReadAll(path);
  ASSERT_GT(whole.size(), 10 * kPage);
  for (size_t page = 1; page < whole.size() / kPage; ++page) {
    SCOPED_TRACE("page " + std::to_string(page + 1));
    std::string damaged = whole;
    damaged.replace(page * kPage, kPage, kPage, '\x5a');
    std::ofstream(path) << damaged;
    look(damaged);
  }
}

}  // namespace tandem::controller
