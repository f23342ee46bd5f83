// SPDX-License-Identifier: Apache-2.0
#include "jobspec/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxDepth = 32;

// Ends the parse from within the handler.
struct TooDeep {
  int line;
  int column;
};

// Events, not yaml-cpp's node tree: that one hides aliases and duplicate keys, and an alias bomb would unfold
// in it.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(YamlNode& root) : root_(root) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(Make(YamlNode::Kind::kNull, mark, "", anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Add(Make(YamlNode::Kind::kAlias, mark, "", 0));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = Make(YamlNode::Kind::kScalar, mark, tag, anchor);
    node.quoted = tag == "!";
    node.text = value;
    Add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Make(YamlNode::Kind::kSequence, mark, tag, anchor), mark);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(Make(YamlNode::Kind::kMap, mark, tag, anchor), mark);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Level {
    YamlNode node;
    YamlNode key;
    bool has_key = false;
  };

  static YamlNode Make(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
                       YAML::anchor_t anchor) {
    YamlNode node;
    node.kind = kind;
    node.anchor = anchor != 0;
    node.tag = tag == "?" || tag == "!" ? "" : tag;  // these mean plain and quoted
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void Add(YamlNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind != YamlNode::Kind::kMap) {
      level.node.elements.push_back(std::move(node));
      return;
    }
    if (!level.has_key) {
      level.key = std::move(node);
    } else {
      level.node.entries.push_back({std::move(level.key), std::move(node)});
    }
    level.has_key = !level.has_key;
  }

  void Open(YamlNode node, const YAML::Mark& mark) {
    if (levels_.size() == kMaxDepth) {
      throw TooDeep{mark.line + 1, mark.column + 1};
    }
    levels_.push_back({.node = std::move(node)});
  }

  void Close() {
    YamlNode node = std::move(levels_.back().node);
    levels_.pop_back();
    Add(std::move(node));
  }

  YamlNode& root_;
  std::vector<Level> levels_;
};

// Before the parser sees it: yaml-cpp takes \x04 for the end of the file, and guesses other encodings from
// NULs.
bool CheckCharacters(std::string_view text, YamlProblem& problem) {
  int line = 1;
  size_t line_start = 0;
  for (size_t at = 0; at < text.size();) {
    char32_t character = 0;
    const int length = platform::DecodeUtf8(text, at, character);
    problem.line = line;
    problem.column = static_cast<int>(at - line_start) + 1;
    if (length == 0) {
      problem.sentence =
          absl::StrFormat("the byte 0x%02x, which is not UTF-8", static_cast<unsigned char>(text[at]));
      problem.remedy = "save the file as UTF-8";
      return false;
    }
    const bool white = character == '\n' || character == '\t' || character == '\r';
    if (!white && (character < 0x20 || (character >= 0x7F && character < 0xA0))) {
      problem.sentence = absl::StrFormat("the control character 0x%02x", static_cast<uint32_t>(character));
      problem.remedy = "remove it";
      return false;
    }
    at += length;
    if (character == '\n') {
      ++line;
      line_start = at;
    }
  }
  problem = {};
  return true;
}

// The beginning of a line, counted from 0, that a tab is in before anything else; npos where none is.
size_t TabInIndentation(std::string_view text, int line) {
  for (; line > 0 && !text.empty(); --line) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  const size_t at = text.find_first_not_of(' ');
  return at != std::string_view::npos && text[at] == '\t' ? at : std::string_view::npos;
}

// What yaml-cpp stumbled over, in words that help: its own name what it was about to read.
YamlProblem ProblemOf(const YAML::Exception& error, std::string_view text) {
  YamlProblem problem = {absl::StrCat("not YAML: ", error.msg), "correct the text; JSON is accepted too"};
  if (error.mark.is_null()) {
    return problem;
  }
  problem.line = error.mark.line + 1;
  problem.column = error.mark.column + 1;
  for (const int line : {error.mark.line, error.mark.line - 1}) {
    const size_t tab = line < 0 ? std::string_view::npos : TabInIndentation(text, line);
    if (tab != std::string_view::npos) {
      return {"a tab in the indentation", "use spaces", line + 1, static_cast<int>(tab) + 1};
    }
  }
  if (error.msg == "illegal map value" || error.msg == "end of map not found") {
    problem.remedy =
        "the indentation does not fit the lines above, or a colon is missing here or a line above";
  }
  if (error.msg.starts_with("invalid unicode")) {
    problem.sentence = "an escape that is no character by itself";
    problem.remedy =
        "write the character itself, or \\U0001f600, as YAML escapes it; JSON's pair \\ud83d\\ude00 is not "
        "read "
        "(json.dumps writes none with ensure_ascii=False)";
  }
  return problem;
}

}  // namespace

bool ParseYaml(std::string_view text, const std::string& what, YamlNode& root, YamlProblem& problem) {
  if (text.size() > kMaxBytes) {
    problem = {absl::StrCat("the text has more than ", kMaxBytes, " bytes"),
               absl::StrCat("a ", what, " is a few lines: is this the right file?")};
    return false;
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    text.remove_prefix(3);
  }
  if (!CheckCharacters(text, problem)) {
    return false;
  }
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    TreeBuilder builder(root);
    if (!parser.HandleNextDocument(builder)) {
      problem = {"the text is empty", absl::StrCat("write a ", what, " in YAML or JSON")};
      return false;
    }
    YamlNode second;
    TreeBuilder second_builder(second);
    if (parser.HandleNextDocument(second_builder)) {
      problem = {"a second document starts", absl::StrCat("put one ", what, " in a file"), second.line,
                 second.column};
      return false;
    }
  } catch (const TooDeep& at) {
    problem = {absl::StrCat("more than ", kMaxDepth, " levels of nesting"),
               absl::StrCat("a ", what, " has a few"), at.line, at.column};
    return false;
  } catch (const YAML::Exception& error) {
    problem = ProblemOf(error, text);
    return false;
  }
  return true;
}

}  // namespace tandem::jobspec
