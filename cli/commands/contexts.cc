// SPDX-License-Identifier: Apache-2.0
// The commands `tandem context ...`: the clusters in ~/.config/tandem/config.yaml.
#include "cli/cluster/contexts.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/table.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

// Refuses --addr and the TLS options, which have no meaning for commands that do not change a context.
absl::Status CheckNoTarget(const TargetFlags& target) {
  return target.addr.empty() && target.context.empty() && !target.tls.given() &&
                 target.tls.server_name.empty()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   "does not accept --addr, --context or --tls-...; `tandem context set NAME` does");
}

absl::Status NotThere(const std::string& what, const std::string& name, const Contexts& contexts) {
  return Failure(kNotFound,
                 absl::StrCat(what, ": there is no context ", Escape(name), "; ", AllowedNames(contexts)));
}

bool IsGoodContextName(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' || c == '@';
  });
}

// Replaces `to` by what a flag gives.
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

// Reads the contexts, lets `change` change them, and writes them.
template <typename Change>
Outcome ChangeContexts(Context& context, const Change& change) {
  TANDEM_ASSIGN_OR_RETURN(Contexts contexts, LoadContexts(context.environment));
  TANDEM_RETURN_IF_ERROR(change(contexts));
  TANDEM_RETURN_IF_ERROR(SaveContexts(contexts, context.environment));
  return kOk;
}

}  // namespace

Outcome ContextList(Context& context, const GetOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckNoTarget(context.target));
  TANDEM_ASSIGN_OR_RETURN(const Contexts contexts, LoadContexts(context.environment));
  if (options.format == Format::kName) {
    for (const auto& [name, cluster] : contexts.clusters) {
      context.Print(absl::StrCat(Escape(name), "\n"));
    }
    return kOk;
  }
  Table table(
      {"CURRENT", "NAME", Shrinking("ADDRESS"), ShrinkingLeft("CERTIFICATE"), Shrinking("SERVER NAME")});
  for (const auto& [name, cluster] : contexts.clusters) {
    table.Add({name == contexts.current ? "*" : "", name, cluster.address, cluster.tls.certificate,
               cluster.tls.server_name});
  }
  context.Print(table);
  return kOk;
}

Outcome ContextUse(Context& context, const ContextOptions& options) {
  return ChangeContexts(context, [&](Contexts& contexts) {
    TANDEM_RETURN_IF_ERROR(CheckNoTarget(context.target));
    if (!contexts.clusters.contains(options.name)) {
      return NotThere(context.what, options.name, contexts);
    }
    contexts.current = options.name;
    return absl::OkStatus();
  });
}

Outcome ContextSet(Context& context, const ContextOptions& options) {
  return ChangeContexts(context, [&](Contexts& contexts) {
    const TargetFlags& target = context.target;
    if (!target.context.empty()) {
      return absl::InvalidArgumentError("does not accept --context: NAME is the context");
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

Outcome ContextRemove(Context& context, const ContextOptions& options) {
  return ChangeContexts(context, [&](Contexts& contexts) {
    TANDEM_RETURN_IF_ERROR(CheckNoTarget(context.target));
    if (contexts.clusters.erase(options.name) == 0) {
      return NotThere(context.what, options.name, contexts);
    }
    if (contexts.current == options.name) {
      contexts.current.clear();
    }
    return absl::OkStatus();
  });
}

}  // namespace tandem::cli
