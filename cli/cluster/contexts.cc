// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/contexts.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/cluster/address.h"
#include "cli/cluster/state_folder.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/message_text.h"
#include "jobspec/yaml_tree.h"
#include "platform/files.h"
#include "platform/shown_text.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

using jobspec::YamlEntry;
using jobspec::YamlNode;

constexpr int64_t kMostConfigBytes = 1 << 20;

class Reader {
 public:
  Reader(std::string file, std::string folder) : file_(std::move(file)), folder_(std::move(folder)) {}

  absl::StatusOr<Contexts> Read(const YamlNode& root) {
    Contexts out{.file = file_};
    for (const YamlEntry& entry : Entries(root, "the file")) {
      if (entry.key.text == "current-context") {
        Take(entry, out.current);
      } else if (entry.key.text == "contexts") {
        for (const YamlEntry& cluster : Entries(entry.value, "contexts")) {
          if (!out.clusters.emplace(cluster.key.text, Cluster(cluster)).second) {
            Complain(cluster.key, platform::Shown(cluster.key.text) + ": it is given twice");
          }
        }
      } else {
        Complain(entry.key, absl::StrCat("there is no ", platform::Shown(entry.key.text),
                                         "; allowed: current-context, contexts"));
      }
    }
    if (problems_.empty() && !out.current.empty() && !out.clusters.contains(out.current)) {
      problems_.push_back(absl::StrCat(file_, ": current-context: ", platform::Shown(out.current),
                                       " is not among the contexts; ",
                                       out.clusters.empty() ? "remove the line" : AllowedNames(out)));
    }
    if (!problems_.empty()) {
      return absl::InvalidArgumentError(absl::StrJoin(problems_, "; "));
    }
    return out;
  }

 private:
  const std::vector<YamlEntry>& Entries(const YamlNode& node, const std::string& what) {
    static const auto& none = *new std::vector<YamlEntry>;
    if (node.kind == YamlNode::Kind::kMap) {
      return node.entries;
    }
    Complain(node, what + ": lines of the form `key: value` are expected");
    return none;
  }

  NamedCluster Cluster(const YamlEntry& entry) {
    NamedCluster out;
    for (const YamlEntry& field : Entries(entry.value, platform::Shown(entry.key.text))) {
      const std::string& key = field.key.text;
      if (key == "address") {
        Take(field, out.address);
      } else if (key == "tls-ca") {
        TakePath(field, out.tls.ca);
      } else if (key == "tls-cert") {
        TakePath(field, out.tls.certificate);
      } else if (key == "tls-key") {
        TakePath(field, out.tls.key);
      } else if (key == "tls-server-name") {
        Take(field, out.tls.server_name);
      } else {
        Complain(field.key, absl::StrCat("there is no ", platform::Shown(key),
                                         "; allowed: address, tls-ca, tls-cert, tls-key, tls-server-name"));
      }
    }
    if (entry.key.text.empty()) {
      Complain(entry.key, "the name of a context must not be empty");
    }
    if (const absl::Status address = CheckAddress(out.address, platform::Shown(entry.key.text) + ".address");
        !address.ok()) {
      Complain(entry.key, std::string(address.message()));
    }
    return out;
  }

  void Take(const YamlEntry& field, std::string& to) {
    if (field.value.kind != YamlNode::Kind::kScalar || field.value.anchor || !field.value.tag.empty()) {
      Complain(field.key, platform::Shown(field.key.text) + ": must be text");
      return;
    }
    if (!to.empty()) {
      Complain(field.key, platform::Shown(field.key.text) + ": it is given twice");
    }
    to = field.value.text;
  }

  void TakePath(const YamlEntry& field, std::string& to) {
    Take(field, to);
    if (!to.empty()) {
      to = (std::filesystem::path(folder_) / to).lexically_normal().string();
    }
  }

  void Complain(const YamlNode& at, const std::string& what) {
    problems_.push_back(absl::StrCat(file_, ":", at.line, ":", at.column, ": ", what));
  }

  const std::string file_;
  const std::string folder_;
  std::vector<std::string> problems_;
};

// Whether all lines are empty or comments, as after the last context was commented out.
bool IsBlank(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  return std::all_of(lines.begin(), lines.end(), [](absl::string_view line) {
    line = absl::StripAsciiWhitespace(line);
    return line.empty() || line[0] == '#';
  });
}

std::string FolderOf(const std::string& file) { return file.substr(0, file.rfind('/')); }

// Returns the number of the first line with a comment; 0: none. A comment begins at a # that begins a word
// outside of quotes.
int CommentLine(absl::string_view text) {
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    char quote = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (quote != 0) {
        i += quote == '"' && c == '\\' ? 1 : 0;
        quote = c == quote ? 0 : quote;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '#' && (i == 0 || absl::ascii_isspace(static_cast<unsigned char>(line[i - 1])))) {
        return number;
      }
    }
  }
  return 0;
}

}  // namespace

absl::StatusOr<Contexts> ReadContexts(std::string_view text, const std::string& file,
                                      const std::string& folder) {
  if (IsBlank({text.data(), text.size()})) {
    return Contexts{.file = file};
  }
  YamlNode root;
  jobspec::YamlProblem problem;
  if (!jobspec::ParseYaml(text, "config file", root, problem)) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":", problem.line, ":", problem.column, ": ",
                                                   problem.sentence, "; ", problem.remedy));
  }
  return Reader(file, folder).Read(root);
}

std::string AllowedNames(const Contexts& contexts) {
  std::vector<std::string> names;
  for (const auto& [name, cluster] : contexts.clusters) {
    names.push_back(Escape(name));
  }
  return names.empty() ? "`tandem context set NAME --addr HOST:PORT` makes one"
                       : absl::StrCat("allowed: ", absl::StrJoin(names, ", "));
}

absl::StatusOr<std::string> ContextsFile(const Environment& environment) {
  TANDEM_ASSIGN_OR_RETURN(const std::string folder,
                          XdgFolder(environment.xdg_config_home, "XDG_CONFIG_HOME", environment.home,
                                    "/.config", "the config file"));
  return folder + "/config.yaml";
}

absl::StatusOr<Contexts> LoadContexts(const Environment& environment) {
  const absl::StatusOr<std::string> file = ContextsFile(environment);
  if (!file.ok()) {
    return Contexts{};
  }
  const absl::StatusOr<std::string> text =
      platform::ReadAtMost(platform::SystemFiles(), *file, kMostConfigBytes);
  if (absl::IsNotFound(text.status())) {
    return Contexts{};
  }
  TANDEM_RETURN_IF_ERROR(text.status());
  return ReadContexts(*text, *file, FolderOf(*file));
}

std::string WriteContexts(const Contexts& contexts, const std::string& folder) {
  std::string out;
  if (!contexts.current.empty()) {
    absl::StrAppend(&out, "current-context: ", YamlText(contexts.current), "\n");
  }
  absl::StrAppend(&out, "contexts:", contexts.clusters.empty() ? " {}\n" : "\n");
  const auto near = [&](const std::string& path) {
    const std::string beside = std::filesystem::path(path).lexically_relative(folder).string();
    return path.empty() || beside.empty() || absl::StartsWith(beside, "..") ? path : beside;
  };
  for (const auto& [name, cluster] : contexts.clusters) {
    absl::StrAppend(&out, "  ", YamlText(name), ":\n");
    for (const auto& [key, text] :
         {std::pair("address", cluster.address), std::pair("tls-ca", near(cluster.tls.ca)),
          std::pair("tls-cert", near(cluster.tls.certificate)), std::pair("tls-key", near(cluster.tls.key)),
          std::pair("tls-server-name", cluster.tls.server_name)}) {
      if (!text.empty()) {
        absl::StrAppend(&out, "    ", key, ": ", YamlText(text), "\n");
      }
    }
  }
  return out;
}

absl::Status SaveContexts(const Contexts& contexts, const Environment& environment) {
  TANDEM_ASSIGN_OR_RETURN(const std::string file, ContextsFile(environment));
  const std::string folder = FolderOf(file);
  platform::Files& files = platform::SystemFiles();
  const absl::StatusOr<std::string> before = platform::ReadAtMost(files, file, kMostConfigBytes);
  if (!before.ok() && !absl::IsNotFound(before.status())) {
    return before.status();
  }
  if (const int line = before.ok() ? CommentLine(*before) : 0; line > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, ":", line, ": there is a comment, which would be lost; edit the file by hand"));
  }
  const std::string text = WriteContexts(contexts, folder);
  const absl::StatusOr<Contexts> again = ReadContexts(text, file, folder);
  if (!again.ok() || again->clusters != contexts.clusters) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": YAML cannot hold these texts; use plain UTF-8"));
  }
  TANDEM_RETURN_IF_ERROR(files.CreateFolders(folder));
  return platform::ReplaceFile(files, file, text);
}

}  // namespace tandem::cli
