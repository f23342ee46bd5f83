// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::jobspec {

struct YamlEntry;

// One node of a YAML document. Scalars are kept as text. Lines and columns count from 1.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap, kAlias };

  Kind kind = Kind::kNull;
  bool quoted = false;  // for a scalar: whether it is quoted
  bool anchor = false;  // whether "&name" stands before it
  std::string tag;      // "!!int" and the like; empty if it has none
  std::string text;     // for a scalar
  int line = 0;
  int column = 0;
  std::vector<YamlEntry> entries;  // for a map, in file order, duplicates included
  std::vector<YamlNode> elements;  // for a sequence
};

struct YamlEntry {
  YamlNode key;
  YamlNode value;
};

struct YamlProblem {
  std::string sentence;  // "not YAML: illegal map value"
  std::string remedy;
  int line = 0;  // 0: unknown
  int column = 0;
};

// Parses one document, which messages call `what` ("job spec"). Returns false and sets `problem` if the text
// is not YAML, empty or longer than 1 MiB, or has more than 32 levels, invalid UTF-8, control characters or a
// second document.
bool ParseYaml(std::string_view text, const std::string& what, YamlNode& root, YamlProblem& problem);

}  // namespace tandem::jobspec
