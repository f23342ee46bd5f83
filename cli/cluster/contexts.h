// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cli/terminal/environment.h"
#include "tls/tls_files.h"

namespace tandem::cli {

// A cluster that one works with, by a name of one's own.
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
  std::string file;     // that was read; empty: there is none
  std::string current;  // empty: none
  std::map<std::string, NamedCluster> clusters;
};

// The text of a config file in `folder`. InvalidArgument with every mistake and its line, and what is
// allowed. Pure.
absl::StatusOr<Contexts> ReadContexts(std::string_view text, const std::string& file,
                                      const std::string& folder);

// For a terminal, after the name of a context that is not among them: "allowed: a, b"; where there are none,
// how to make one.
std::string AllowedNames(const Contexts& contexts);

// Where the file is, or would be. FailedPrecondition where neither HOME nor XDG_CONFIG_HOME is set to
// an absolute path.
absl::StatusOr<std::string> ContextsFile(const Environment& environment);

// No contexts where there is no such file.
absl::StatusOr<Contexts> LoadContexts(const Environment& environment);

// Such a text; files below `folder` are named as beside it. Pure.
std::string WriteContexts(const Contexts& contexts, const std::string& folder);

// Makes or replaces the config file. FailedPrecondition where the one that is there has comments, which would
// be lost.
absl::Status SaveContexts(const Contexts& contexts, const Environment& environment);

}  // namespace tandem::cli
