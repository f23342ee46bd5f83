// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::jobspec {

struct YamlEntry;

// One node of a YAML document, nothing interpreted. Lines and columns count from 1.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap, kAlias };

  Kind kind = Kind::kNull;
  bool quoted = false;  // of a scalar
  bool anchor = false;  // "&name" stands before it
  std::string tag;      // "!!int" and the like; empty for none
  std::string text;     // of a scalar
  int line = 0;
  int column = 0;
  std::vector<YamlEntry> entries;  // of a map, in file order, duplicates included
  std::vector<YamlNode> elements;  // of a sequence
};

struct YamlEntry {
  YamlNode key;
  YamlNode value;
};

struct YamlProblem {
  std::string sentence;  // "not YAML: illegal map value"
  std::string remedy;
  int line = 0;  // 0: none
  int column = 0;
};

// Parses one document, which messages call a `what`: "job spec". Refuses (returns false, fills `problem`)
// what is not YAML, more than 1 MiB, more than 32 levels, invalid UTF-8, control characters, an empty text, a
// second document.
bool ParseYaml(std::string_view text, const std::string& what, YamlNode& root, YamlProblem& problem);

}  // namespace tandem::jobspec
