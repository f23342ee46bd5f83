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
// A relative path in the file is relative to the file's folder.
struct Contexts {
  std::string file;     // path of the config file; empty if there is none
  std::string current;  // name of the current context; empty if there is none
  std::map<std::string, NamedCluster> clusters;
};

// Parses `text`, the contents of the config file `file` in `folder`. InvalidArgument names every mistake,
// its line and what is allowed. Pure.
absl::StatusOr<Contexts> ReadContexts(std::string_view text, const std::string& file,
                                      const std::string& folder);

// Returns what a message says after the name of an unknown context: "allowed: a, b", or, if there is no
// context, how to make one.
std::string AllowedNames(const Contexts& contexts);

// Returns the path of the config file, which may not exist. FailedPrecondition if neither HOME nor
// XDG_CONFIG_HOME is set to an absolute path.
absl::StatusOr<std::string> ContextsFile(const Environment& environment);

// Reads the config file. Returns no contexts if it does not exist.
absl::StatusOr<Contexts> LoadContexts(const Environment& environment);

// Returns the text of a config file in `folder`; paths below `folder` are relative in it. Pure.
std::string WriteContexts(const Contexts& contexts, const std::string& folder);

// Writes the config file. FailedPrecondition if the existing one has comments, which would be lost.
absl::Status SaveContexts(const Contexts& contexts, const Environment& environment);

}  // namespace tandem::cli
