// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// What one field may hold, independent of other fields. The rules are tables, so that the reader and Validate
// agree.

struct IntegerRule {
  const char* path;
  int64_t min;
  int64_t max;
  const char* word = nullptr;  // a word that may replace the number; kWord stands for it in the message
};

// The value of a field whose IntegerRule::word was given.
inline constexpr int64_t kWord = -1;

struct NumberRule {
  const char* path;
  double min;
  double max;
  bool above_min;  // if true, min itself is not allowed
  bool below_max;  // if true, max itself is not allowed
};

struct TextRule {
  const char* path;
  const char* allowed;
};

// A field that every job needs.
struct RequiredRule {
  const char* path;
  const char* remedy;
};

// A field that only a later version will implement. Any value is refused.
struct AbsentRule {
  const char* path;
  const char* remedy;
};

// An enum or number field of which only some values are implemented.
struct BuiltRule {
  const char* path;
  std::vector<std::string> built;  // as ValueText writes them
  const char* remedy;
};

const std::vector<IntegerRule>& IntegerRules();
const std::vector<NumberRule>& NumberRules();
const std::vector<RequiredRule>& RequiredRules();
const std::vector<AbsentRule>& AbsentRules();
const std::vector<BuiltRule>& BuiltRules();

// What may stand at the path, in words: "1 to 1000000000". If there is no rule, the name of the type. Empty
// if no value is allowed.
std::string AllowedText(std::string_view path);

// The rule of a field that no job may have yet; null if there is none.
const AbsentRule* FindAbsentRule(std::string_view path);

// The rule of an integer that a word may replace; null if there is none.
const IntegerRule* FindWordRule(std::string_view path);

// Whether a strategy has an outer axis of `parallelism.replicas` ranks. (The table of placements has the same
// fact, but this folder cannot include it; tests/plan compares the two.)
bool HasReplicas(v1::Strategy strategy);

}  // namespace tandem::jobspec
