// SPDX-License-Identifier: Apache-2.0
#include "config/config_file.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "jobspec/yaml_tree.h"
#include "platform/shown_text.h"

namespace tandem::config {
namespace {

using jobspec::YamlNode;

bool IsPlainValue(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && !node.anchor && node.tag.empty();
}

constexpr char kNoValue[] = "a value is a text, or a list of texts, without anchors, aliases and tags";

// Puts the value of a node into `setting`. Returns why the node is not a value; empty if it is.
std::string TakeValue(const YamlNode& node, Setting& setting) {
  if (node.kind == YamlNode::Kind::kNull) {
    return "it has no value; omit the line to get the default";
  }
  if (IsPlainValue(node)) {
    setting.values = {node.text};
    return "";
  }
  if (node.kind != YamlNode::Kind::kSequence || node.anchor || !node.tag.empty()) {
    return kNoValue;
  }
  setting.list = true;
  for (const YamlNode& element : node.elements) {
    if (!IsPlainValue(element)) {
      return kNoValue;
    }
    setting.values.push_back(element.text);
  }
  return setting.values.empty() ? "the list is empty; omit the line to get the default" : "";
}

// Whether the text is a template of which no line is in use. An empty file does not count, because it may be
// what is left of a longer one.
bool IsAllComments(std::string_view text) {
  bool comments = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t first = text.find_first_not_of(" \t\r", begin);
    if (first < end) {
      if (text[first] != '#') {
        return false;
      }
      comments = true;
    }
    begin = end + 1;
  }
  return comments;
}

}  // namespace

std::string Problem::In(const std::string& file) const {
  return line > 0 ? absl::StrCat(file, ":", line, ":", column, ": ", text) : absl::StrCat(file, ": ", text);
}

Problem ProblemWith(const Setting& setting, const std::string& sentence) {
  return {.line = setting.line,
          .column = setting.column,
          .text = absl::StrCat(platform::Shown(setting.key), ": ", sentence)};
}

ConfigFile ReadConfigText(std::string_view text) {
  ConfigFile out;
  if (IsAllComments(text)) {
    return out;
  }
  YamlNode root;
  jobspec::YamlProblem problem;
  if (!jobspec::ParseYaml(text, "config file", root, problem)) {
    out.problems.push_back(
        {problem.line, problem.column, absl::StrCat(problem.sentence, "; ", problem.remedy)});
    return out;
  }
  if (root.kind != YamlNode::Kind::kMap) {
    out.problems.push_back({root.line, root.column, "lines of the form `flag: value` are expected"});
    return out;
  }
  std::map<std::string, int> lines;  // key → the line at which it stood first
  for (const jobspec::YamlEntry& entry : root.entries) {
    const YamlNode& key = entry.key;
    Setting setting{.key = key.text, .values = {}, .line = key.line, .column = key.column};
    std::string why;
    if (!IsPlainValue(key)) {
      why = "a key is the name of a flag";
    } else if (const auto [first, fresh] = lines.emplace(key.text, key.line); !fresh) {
      why = absl::StrCat("it is given twice, first on line ", first->second);
    } else {
      why = TakeValue(entry.value, setting);
    }
    if (why.empty()) {
      out.settings.push_back(std::move(setting));
    } else {
      out.problems.push_back(ProblemWith(setting, why));
    }
  }
  return out;
}

}  // namespace tandem::config
