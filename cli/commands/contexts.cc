// SPDX-License-Identifier: Apache-2.0
// The clusters that one works with, in ~/.config/tandem/config.yaml.
#include "cli/cluster/contexts.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/table.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

int FailContext(Context& context, const char* what, const absl::Status& status) {
  return Fail(context.console,
              absl::IsInvalidArgument(status) ? kUsage
              : absl::IsNotFound(status)      ? kNotFound
                                              : kFailed,
              absl::StrCat("context ", what, ": ", status.message()));
}

// --addr and the TLS files mean nothing to those that change no context's contents.
absl::Status CheckNoTarget(const TargetFlags& target) {
  return target.addr.empty() && target.context.empty() && !target.tls.given() &&
                 target.tls.server_name.empty()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   "takes no --addr, --context or --tls-...; `tandem context set NAME` takes what to change");
}

absl::Status NotThere(const std::string& name, const Contexts& contexts) {
  std::vector<std::string> names;
  for (const auto& [each, cluster] : contexts.clusters) {
    names.push_back(Escape(each));
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no ", Escape(name), "; there are: ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

bool IsGoodContextName(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' || c == '@';
  });
}

// What a flag gives takes the place of what was there.
void TakeIfGiven(const std::string& given, std::string& to) {
  if (!given.empty()) {
    to = given;
  }
}

void TakePathIfGiven(const std::string& given, std::string& to) {
  if (!given.empty()) {
    to = std::filesystem::absolute(given).lexically_normal().string();
  }
}

// Reads the contexts, has `change` change them, and writes them again.
template <typename Change>
int ChangeContexts(Context& context, const char* what, const Change& change) {
  absl::StatusOr<Contexts> contexts = LoadContexts(context.environment);
  if (!contexts.ok()) {
    return FailContext(context, what, contexts.status());
  }
  absl::Status status = change(*contexts);
  if (status.ok()) {
    status = SaveContexts(*contexts, context.environment);
  }
  return status.ok() ? kOk : FailContext(context, what, status);
}

}  // namespace

int ContextList(Context& context, const ContextListOptions& options) {
  if (const absl::Status status = CheckNoTarget(context.target); !status.ok()) {
    return FailContext(context, "list", status);
  }
  const absl::StatusOr<Contexts> contexts = LoadContexts(context.environment);
  if (!contexts.ok()) {
    return FailContext(context, "list", contexts.status());
  }
  if (options.format == Format::kName) {
    for (const auto& [name, cluster] : contexts->clusters) {
      context.console.Write(Stream::kOut, absl::StrCat(Escape(name), "\n"));
    }
    return kOk;
  }
  Table table({{.heading = "CURRENT"},
               {.heading = "NAME"},
               {.heading = "ADDRESS", .shrinks = true},
               {.heading = "CERTIFICATE", .shrinks = true, .keep_end = true},
               {.heading = "SERVER NAME", .shrinks = true}});
  for (const auto& [name, cluster] : contexts->clusters) {
    table.Add({name == contexts->current ? "*" : "", name, cluster.address, cluster.tls.certificate,
               cluster.tls.server_name});
  }
  context.console.Write(Stream::kOut, table.Render(context.TableWidth(), context.console.unicode()));
  return kOk;
}

int ContextUse(Context& context, const ContextOptions& options) {
  return ChangeContexts(context, "use", [&](Contexts& contexts) {
    TANDEM_RETURN_IF_ERROR(CheckNoTarget(context.target));
    if (!contexts.clusters.contains(options.name)) {
      return NotThere(options.name, contexts);
    }
    contexts.current = options.name;
    return absl::OkStatus();
  });
}

int ContextSet(Context& context, const ContextOptions& options) {
  return ChangeContexts(context, "set", [&](Contexts& contexts) {
    const TargetFlags& target = context.target;
    if (!target.context.empty()) {
      return absl::InvalidArgumentError("takes no --context: NAME says which");
    }
    if (!IsGoodContextName(options.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", Escape(options.name),
                       "\" is not a name for a context; allowed: 1 to 64 letters, digits and . _ @ -"));
    }
    NamedCluster& cluster = contexts.clusters[options.name];
    TakeIfGiven(target.addr, cluster.address);
    TakePathIfGiven(target.tls.ca, cluster.tls.ca);
    TakePathIfGiven(target.tls.certificate, cluster.tls.certificate);
    TakePathIfGiven(target.tls.key, cluster.tls.key);
    TakeIfGiven(target.tls.server_name, cluster.tls.server_name);
    if (cluster.address.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.name, " is new; give its --addr, as in --addr ctl.example:7471"));
    }
    TANDEM_RETURN_IF_ERROR(CheckAddress(cluster.address, "--addr"));
    if (cluster.tls.given()) {
      TANDEM_RETURN_IF_ERROR(tls::ReadTlsFiles(cluster.tls).status());
    }
    if (contexts.current.empty()) {
      contexts.current = options.name;
    }
    return absl::OkStatus();
  });
}

int ContextRemove(Context& context, const ContextOptions& options) {
  return ChangeContexts(context, "remove", [&](Contexts& contexts) {
    TANDEM_RETURN_IF_ERROR(CheckNoTarget(context.target));
    if (contexts.clusters.erase(options.name) == 0) {
      return NotThere(options.name, contexts);
    }
    if (contexts.current == options.name) {
      contexts.current.clear();
    }
    return absl::OkStatus();
  });
}

}  // namespace tandem::cli
