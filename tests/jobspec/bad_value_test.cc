// SPDX-License-Identifier: Apache-2.0
// Job files of which some value is bad, and the lines that say so: tests/jobspec/bad_values.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/jobspec.h"
#include "tests/jobspec/bad_spec.h"

namespace tandem::jobspec {
namespace {

// The entries of bad_values/NAME.txt, whose first lines say how they are written.
std::vector<BadSpec> Entries(const std::string& name) {
  std::ifstream file(absl::StrCat(TANDEM_BAD_VALUES, "/", name, ".txt"));
  EXPECT_TRUE(file.is_open()) << name;
  std::vector<BadSpec> entries;
  std::vector<std::string> from;
  std::vector<std::string> to;
  const auto end_entry = [&] {
    if (!entries.empty()) {
      entries.back().from = absl::StrJoin(from, "\n");
      entries.back().to = absl::StrJoin(to, "\n");
    }
    from.clear();
    to.clear();
  };
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "== ")) {
      end_entry();
      entries.push_back({.name = line.substr(3)});
    } else if (line == "-" || absl::StartsWith(line, "- ")) {
      from.push_back(line.substr(std::min<size_t>(2, line.size())));
    } else if (absl::StartsWith(line, "+ ")) {
      to.push_back(line.substr(2));
    } else if (!line.empty() && !absl::StartsWith(line, "#")) {
      absl::StrAppend(&entries.at(entries.size() - 1).messages, line, "\n");
    }
  }
  end_entry();
  return entries;
}

void ExpectEntries(const std::string& name) {
  const std::vector<BadSpec> entries = Entries(name);
  ASSERT_FALSE(entries.empty());
  ExpectMessages(entries);
}

TEST(BadSpecTest, FieldsAreRefusedWithTheirRange) { ExpectEntries("fields"); }

TEST(BadSpecTest, MissingFieldsAndFieldsThatDoNotFitAreRefused) { ExpectEntries("combinations"); }

TEST(BadSpecTest, WhatIsNotBuiltIsRefusedByName) { ExpectEntries("not_built"); }

}  // namespace
}  // namespace tandem::jobspec
