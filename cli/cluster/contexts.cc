// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/contexts.h"

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/cluster/address.h"
#include "jobspec/text.h"
#include "jobspec/yaml_tree.h"
#include "platform/files.h"

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
            Complain(cluster.key, jobspec::Shown(cluster.key.text) + ": it stands twice");
          }
        }
      } else {
        Complain(entry.key, absl::StrCat("there is no ", jobspec::Shown(entry.key.text),
                                         "; allowed: current-context, contexts"));
      }
    }
    if (problems_.empty() && !out.current.empty() && !out.clusters.contains(out.current)) {
      problems_.push_back(absl::StrCat(file_, ": current-context: ", jobspec::Shown(out.current),
                                       " is not among the contexts"));
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
    for (const YamlEntry& field : Entries(entry.value, jobspec::Shown(entry.key.text))) {
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
        Complain(field.key, absl::StrCat("there is no ", jobspec::Shown(key),
                                         "; allowed: address, tls-ca, tls-cert, tls-key, tls-server-name"));
      }
    }
    if (const absl::Status address = CheckAddress(out.address, jobspec::Shown(entry.key.text) + ".address");
        !address.ok()) {
      Complain(entry.key, std::string(address.message()));
    }
    return out;
  }

  void Take(const YamlEntry& field, std::string& to) {
    if (field.value.kind != YamlNode::Kind::kScalar || field.value.anchor || !field.value.tag.empty()) {
      Complain(field.key, jobspec::Shown(field.key.text) + ": a text is expected");
      return;
    }
    if (!to.empty()) {
      Complain(field.key, jobspec::Shown(field.key.text) + ": it stands twice");
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

}  // namespace

absl::StatusOr<Contexts> ReadContexts(std::string_view text, const std::string& file,
                                      const std::string& folder) {
  YamlNode root;
  jobspec::YamlProblem problem;
  if (!jobspec::ParseYaml(text, "config file", root, problem)) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":", problem.line, ":", problem.column, ": ",
                                                   problem.sentence, "; ", problem.remedy));
  }
  return Reader(file, folder).Read(root);
}

absl::StatusOr<Contexts> LoadContexts(const Environment& environment) {
  std::string folder = environment.xdg_config_home;
  if (folder.empty()) {
    if (environment.home.empty()) {
      return Contexts{};
    }
    folder = environment.home + "/.config";
  }
  folder += "/tandem";
  const std::string file = folder + "/config.yaml";
  const absl::StatusOr<std::string> text =
      platform::ReadAtMost(platform::SystemFiles(), file, kMostConfigBytes);
  if (absl::IsNotFound(text.status())) {
    return Contexts{};
  }
  if (!text.ok()) {
    return text.status();
  }
  return ReadContexts(*text, file, folder);
}

}  // namespace tandem::cli
