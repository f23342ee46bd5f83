// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The values that a field may have, whatever the other fields are. The rules are tables that the reader and
// Validate share.

// The range of a number. No limit of an integer has more than 53 bits, so that a double holds it.
struct RangeRule {
  const char* path;
  double min;
  double max;
  bool above_min = false;      // if true, min itself is not allowed
  bool below_max = false;      // if true, max itself is not allowed
  const char* word = nullptr;  // a word that may replace the number; a JobSpec then has kWord
};

// The value of a field whose RangeRule::word was given.
inline constexpr int64_t kWord = -1;

struct TextRule {
  const char* path;
  const char* allowed;
};

// A field that every job needs.
struct RequiredRule {
  const char* path;
  const char* remedy;
};

// A field that is not implemented yet. Any value is refused.
struct AbsentRule {
  const char* path;
  const char* remedy;
};

// A field of which only some values are implemented.
struct BuiltRule {
  const char* path;
  std::vector<std::string> built;  // as ValueText writes them
  const char* remedy;
};

// The fields that hold the path of a file or a folder. checkpoint.resume may be a word instead (resume.h).
struct PathRule {
  const char* path;
  bool is_pattern = false;  // whether it may be a glob
};
inline constexpr PathRule kPathRules[] = {{"data.train", true},        {"data.validation", true},
                                          {"data.sources.path", true}, {"data.validation_sets.path", true},
                                          {"checkpoint.directory"},    {"checkpoint.export.to"},
                                          {"checkpoint.start_from"},   {"checkpoint.resume"}};

const std::vector<RangeRule>& RangeRules();
const std::vector<RequiredRule>& RequiredRules();
const std::vector<AbsentRule>& AbsentRules();
const std::vector<BuiltRule>& BuiltRules();

// The allowed values of the field, for messages: "1 to 1000000000". If there is no rule, what the field's
// type allows: "true, false". Empty if no value is allowed.
std::string AllowedText(std::string_view path);

// The rule of a field that no job may have yet; null if there is none.
const AbsentRule* FindAbsentRule(std::string_view path);

// The rule of an integer that a word may replace; null if there is none.
const RangeRule* FindWordRule(std::string_view path);

// Whether a strategy has an outer axis of `parallelism.replicas` ranks. (The table of placements in
// schedules/ says the same, but jobspec/ cannot include it; tests/plan compares the two.)
bool HasReplicas(v1::Strategy strategy);

}  // namespace tandem::jobspec
