// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/terminal/environment.h"
#include "tls/tls_files.h"

namespace tandem::cli {

// A cluster to which a user has given a name.
struct NamedCluster {
  std::string address;
  tls::TlsFiles tls;
  bool operator==(const NamedCluster&) const = default;
};

// $XDG_CONFIG_HOME/tandem/config.yaml, or ~/.config/tandem/config.yaml:
//
//   current-context: lab
//   contexts:
//     lab: {address: "ctl.lab:7471", tls-ca: ca.crt, tls-cert: alice.crt, tls-key: alice.key}
//
// A file's path that does not begin with / is one beside the config file.
struct Contexts {
  std::string file;     // that was read; empty if there is no such file
  std::string current;  // name of the current context; empty if none is chosen
  std::map<std::string, NamedCluster> clusters;
};

// Reads the text of a config file in `folder`. InvalidArgument with every mistake and its line, and what is
// allowed. Pure.
absl::StatusOr<Contexts> ReadContexts(std::string_view text, const std::string& file,
                                      const std::string& folder);

// Returns what follows, on a terminal, the name of an unknown context: "allowed: a, b", or how to make one if
// there is no context.
std::string AllowedNames(const Contexts& contexts);

// Returns the path that the file has or would have. FailedPrecondition if neither HOME nor XDG_CONFIG_HOME is
// set to an absolute path.
absl::StatusOr<std::string> ContextsFile(const Environment& environment);

// Reads the config file. Without a file there are no contexts.
absl::StatusOr<Contexts> LoadContexts(const Environment& environment);

// Writes such a text; paths below `folder` are written relative to it. Pure.
std::string WriteContexts(const Contexts& contexts, const std::string& folder);

// Makes or replaces the config file. FailedPrecondition if the present one has comments, which would
// be lost.
absl::Status SaveContexts(const Contexts& contexts, const Environment& environment);

}  // namespace tandem::cli
