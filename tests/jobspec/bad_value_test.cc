// SPDX-License-Identifier: Apache-2.0
// Job files of which some value is bad, and the lines that say so: tests/jobspec/bad_values.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "jobspec/jobspec.h"
#include "tests/jobspec/bad_spec.h"

namespace tandem::jobspec {
namespace {

// The entries of bad_values/NAME.yaml.
std::vector<BadSpec> Entries(const std::string& name) {
  std::vector<BadSpec> entries;
  for (const YAML::Node& entry : YAML::LoadFile(absl::StrCat(TANDEM_BAD_VALUES, "/", name, ".yaml"))) {
    entries.push_back({.name = entry["name"].as<std::string>(),
                       .from = entry["from"].as<std::string>(""),
                       .to = entry["to"].as<std::string>(""),
                       .messages = entry["says"] ? entry["says"].as<std::string>() + "\n" : ""});
  }
  return entries;
}

void ExpectEntries(const std::string& name) {
  const std::vector<BadSpec> entries = Entries(name);
  ASSERT_FALSE(entries.empty());
  ExpectMessages(entries);
}

TEST(BadSpecTest, FieldsAreRefusedWithTheirRange) { ExpectEntries("fields"); }

TEST(BadSpecTest, MissingOrUnfitFieldsAreRefused) { ExpectEntries("combinations"); }

TEST(BadSpecTest, LayersByAPatternAreRefusedByName) { ExpectEntries("patterns"); }

TEST(BadSpecTest, WhatIsNotBuiltIsRefusedByName) { ExpectEntries("not_built"); }

}  // namespace
}  // namespace tandem::jobspec
