// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "jobspec/field_rules.h"
#include "jobspec/jobspec.h"
#include "jobspec/scalars.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"
#include "jobspec/yaml_tree.h"
#include "platform/regular_file.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kReadLimit = (1 << 20) + 1;  // one more than the parser takes, so that it says so

// Whether a job cannot do without the field, or without a field of the block.
bool IsRequired(const std::string& path) {
  const std::string of_rule = WithoutIndices(path);
  return path == "model" ||
         std::any_of(RequiredRules().begin(), RequiredRules().end(),
                     [&](const auto& rule) { return std::string_view(rule.path).starts_with(of_rule); });
}

// What stands where another kind of node is expected.
std::string Written(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a block";
    default:
      return node.text;
  }
}

class Reader {
 public:
  explicit Reader(ReadResult& result) : result_(result) {}

  void ReadMap(const YamlNode& map, const std::string& path, Message& message) {
    absl::flat_hash_map<std::string, int> first_line;
    for (const auto& [key, value] : map.entries) {
      if (result_.violations.size() >= kMaxViolations) {
        if (result_.violations.size() == kMaxViolations) {
          Refuse(key, "", absl::StrCat("more than ", kMaxViolations, " things are wrong"), "",
                 "mend these first");
        }
        return;
      }
      ReadEntry(key, value, path, message, first_line);
    }
  }

 private:
  void ReadEntry(const YamlNode& key, const YamlNode& value, const std::string& parent, Message& message,
                 absl::flat_hash_map<std::string, int>& first_line) {
    const google::protobuf::Descriptor& type = *message.GetDescriptor();
    if (key.kind != YamlNode::Kind::kScalar || key.anchor || !key.tag.empty()) {
      Refuse(key, parent, "a key that is not plain text", absl::StrJoin(Keys(type), ", "),
             "write every key as a word");
      return;
    }
    if (!key.quoted && key.text == "<<") {
      Refuse(key, JoinPath(parent, "<<"), "a merge key", "every key written out", "copy what it would merge");
      return;
    }
    const std::string path = JoinPath(parent, key.text);
    const FieldDescriptor* field = type.FindFieldByName(key.text);
    if (field == nullptr) {
      RefuseUnknown(key, parent, type);
      return;
    }
    const auto [found, fresh] = first_line.try_emplace(key.text, key.line);
    if (!fresh) {
      Refuse(key, path, absl::StrCat("a second ", key.text), "each key once",
             absl::StrCat("the first is on line ", found->second, ": keep one of the two"));
      return;
    }
    result_.positions.push_back({path, {key.line, key.column}});
    ReadValue(key, value, path, *field, message);
  }

  void ReadValue(const YamlNode& key, const YamlNode& value, const std::string& path,
                 const FieldDescriptor& field, Message& message) {
    if (value.kind == YamlNode::Kind::kAlias) {
      RefuseValue(key, path, "an alias (*name)", "write the value out");
    } else if (value.anchor) {
      RefuseValue(key, path, "an anchor (&name)", "write the value without it");
    } else if (!value.tag.empty()) {
      RefuseValue(key, path, absl::StrCat("the tag ", value.tag), "write the value without it");
    } else if (value.kind == YamlNode::Kind::kNull) {
      RefuseValue(key, path, Written(value),
                  IsRequired(path) ? "give a value" : "give a value, or omit the key for the default");
    } else if (field.is_repeated()) {
      ReadList(key, value, path, field, message);
    } else if (field.message_type() != nullptr) {
      if (value.kind == YamlNode::Kind::kMap) {
        ReadMap(value, path, *message.GetReflection()->MutableMessage(&message, &field));
      } else {
        RefuseValue(key, path, Written(value), "write a block of keys");
      }
    } else if (value.kind != YamlNode::Kind::kScalar) {
      RefuseValue(key, path, Written(value), "write one value");
    } else if (const absl::Status set = SetScalar(value, path, field, message); !set.ok()) {
      RefuseValue(key, path, value.quoted ? absl::StrCat("\"", value.text, "\"") : value.text,
                  std::string(set.message()));
    }
  }

  // A list of blocks: the schema has no other.
  void ReadList(const YamlNode& key, const YamlNode& list, const std::string& path,
                const FieldDescriptor& field, Message& message) {
    if (list.kind != YamlNode::Kind::kSequence) {
      RefuseValue(key, path, Written(list), "write a list: a line that begins with - for each entry");
      return;
    }
    if (list.elements.empty() || list.elements.size() > kMostListEntries) {
      RefuseValue(key, path,
                  list.elements.empty() ? "an empty list"
                                        : absl::StrCat("a list of ", list.elements.size(), " entries"),
                  list.elements.empty() ? "write an entry, or omit the key" : "write fewer");
      return;
    }
    for (size_t i = 0; i < list.elements.size(); ++i) {
      const YamlNode& entry = list.elements[i];
      const std::string at = EntryPath(path, static_cast<int>(i));
      // Also where it is refused, so that the others keep their indices.
      Message& block = *message.GetReflection()->AddMessage(&message, &field);
      result_.positions.push_back({at, {entry.line, entry.column}});
      if (entry.kind == YamlNode::Kind::kAlias || entry.anchor || !entry.tag.empty()) {
        RefuseValue(entry, at, "an alias, an anchor or a tag", "write the entry out");
      } else if (entry.kind != YamlNode::Kind::kMap) {
        RefuseValue(entry, at, Written(entry), "write a block of keys");
      } else {
        ReadMap(entry, at, block);
      }
    }
  }

  void RefuseUnknown(const YamlNode& key, const std::string& parent,
                     const google::protobuf::Descriptor& type) {
    const std::string meant = SuggestPath(parent, type, key.text);
    const std::string prefix = parent.empty() ? "" : absl::StrCat(parent, ".");
    const bool sibling =
        !meant.empty() && meant.starts_with(prefix) && meant.find('.', prefix.size()) == std::string::npos;
    std::string remedy = "use one of these";
    if (meant == JoinPath(parent, key.text)) {
      remedy = "a dot does not open a block: nest the keys";
    } else if (!meant.empty()) {
      remedy = absl::StrCat("did you mean ", sibling ? meant.substr(prefix.size()) : meant, "?");
    }
    Refuse(key, JoinPath(parent, key.text), absl::StrCat("the unknown key ", platform::Shown(key.text, 40)),
           absl::StrJoin(Keys(type), ", "), remedy);
    if (!meant.empty()) {
      result_.unusable.push_back(meant);  // the misspelt field is not "missing", too
    }
  }

  // What stands at the path is not a value of its field. `why`: how to write one, which is idle advice for a
  // field that no job may have.
  void RefuseValue(const YamlNode& key, const std::string& path, const std::string& written,
                   const std::string& why) {
    const AbsentRule* absent = FindAbsentRule(path);
    Refuse(key, path, written, AllowedText(path), absent == nullptr ? why : absent->remedy);
  }

  void Refuse(const YamlNode& at, const std::string& path, const std::string& value,
              const std::string& allowed, const std::string& remedy) {
    v1::Violation violation = MakeViolation(path, value.empty() ? "\"\"" : value, allowed, remedy);
    violation.set_file(result_.file);
    violation.set_line(at.line);
    violation.set_column(at.column);
    result_.violations.push_back(std::move(violation));
    if (!path.empty()) {
      result_.unusable.push_back(path);
    }
  }

  ReadResult& result_;
};

// The text as a whole cannot be used.
void RefuseAll(ReadResult& result, const std::string& sentence, const std::string& allowed,
               const std::string& remedy, int line, int column) {
  v1::Violation violation = MakeViolation("", "", allowed, remedy);
  violation.set_value(platform::Shown(sentence, 200));
  violation.set_file(result.file);
  violation.set_line(line);
  violation.set_column(column);
  result.violations.push_back(std::move(violation));
  result.unusable.push_back("");
}

}  // namespace

ReadResult ReadText(std::string_view text, const std::string& file) {
  ReadResult result;
  result.file = file;
  YamlNode root;
  YamlProblem problem;
  if (!ParseYaml(text, "job spec", root, problem)) {
    RefuseAll(result, problem.sentence, "", problem.remedy, problem.line, problem.column);
  } else if (root.kind != YamlNode::Kind::kMap || root.anchor || !root.tag.empty()) {
    RefuseAll(result, "the text is not a block of keys",
              absl::StrJoin(Keys(*v1::JobSpec::descriptor()), ", "), "write a job spec in YAML or JSON",
              root.line, root.column);
  } else {
    Reader(result).ReadMap(root, "", result.spec);
  }
  return result;
}

ReadResult ReadFile(const std::string& path) {
  ReadResult failed;
  failed.file = path == "-" ? "standard input" : path;
  const bool standard_input = path == "-";
  platform::Descriptor file;
  absl::Status status;
  if (!standard_input) {
    absl::StatusOr<platform::Descriptor> opened = platform::OpenRegularFileOrPipe(path);
    status = opened.status();
    if (opened.ok()) {
      file = *std::move(opened);
    }
  }
  std::string text;
  while (status.ok() && text.size() < kReadLimit) {
    char buffer[65536];
    const ssize_t count = read(standard_input ? STDIN_FILENO : file.get(), buffer,
                               std::min(sizeof(buffer), kReadLimit - text.size()));
    if (count == 0) {
      break;
    }
    if (count > 0) {
      text.append(buffer, count);
    } else if (errno != EINTR) {
      status = platform::FileError(errno, "read", failed.file);
    }
  }
  if (!status.ok()) {
    RefuseAll(failed,
              absl::StrCat("the file cannot be read: ",
                           absl::StripPrefix(status.message(), absl::StrCat("open ", path, ": "))),
              "", "name a file with a job spec, or - for standard input", 0, 0);
    return failed;
  }
  return ReadText(text, failed.file);
}

}  // namespace tandem::jobspec
