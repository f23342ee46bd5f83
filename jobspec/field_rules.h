// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// What one field may hold, whatever the others hold: tables, so that the reader and Validate say the same.

struct IntegerRule {
  const char* path;
  int64_t min;
  int64_t max;
  const char* word = nullptr;  // may stand there instead, and is kWord in the message
};

// For a field with an IntegerRule::word.
inline constexpr int64_t kWord = -1;

struct NumberRule {
  const char* path;
  double min;
  double max;
  bool above_min;  // min itself is not allowed
  bool below_max;  // max itself is not allowed
};

struct TextRule {
  const char* path;
  const char* allowed;
};

// A field without which there is no job.
struct RequiredRule {
  const char* path;
  const char* remedy;
};

// A field that a later version will know what to do with. Any value is refused.
struct AbsentRule {
  const char* path;
  const char* remedy;
};

// A field, enum or number, of whose values only some are built.
struct BuiltRule {
  const char* path;
  std::vector<std::string> built;  // as ValueText gives them
  const char* remedy;
};

const std::vector<IntegerRule>& IntegerRules();
const std::vector<NumberRule>& NumberRules();
const std::vector<RequiredRule>& RequiredRules();
const std::vector<AbsentRule>& AbsentRules();
const std::vector<BuiltRule>& BuiltRules();

// What may stand at the path, in words: "1 to 1000000000". Falls back on the type's name. Empty where no
// value may stand.
std::string AllowedText(std::string_view path);

// The rule of a field that no job may have yet; null where it may.
const AbsentRule* FindAbsentRule(std::string_view path);

// The rule of an integer that a word may stand for; null where none may.
const IntegerRule* FindWordRule(std::string_view path);

// Whether a strategy has an outer axis, of `parallelism.replicas` ranks. (The table of placements, which says
// so too, is not within reach of this folder: tests/plan compares them.)
bool HasReplicas(v1::Strategy strategy);

}  // namespace tandem::jobspec
