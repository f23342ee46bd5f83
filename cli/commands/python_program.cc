// SPDX-License-Identifier: Apache-2.0
// The commands that Python libraries carry out: this process becomes the program tandem-py.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/cluster/address.h"
#include "cli/commands/commands.h"
#include "cli/terminal/error.h"
#include "platform/build_info.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

// Runs tandem-py in place of this process, and so returns only if it cannot. extra: the extra of the Python
// package, in brackets, with the libraries that the command needs.
Outcome Become(const Context& context, const std::vector<std::string>& command, const std::string& extra) {
  const std::string& build = platform::BuildVersion();
  std::vector<std::string> words = {"tandem-py", "--cli-version", build.substr(0, build.find('+'))};
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // ignored signals stay ignored over exec
  execv(absl::StrCat(context.own_folder, "/tandem-py").c_str(), arguments.data());
  if (errno == ENOENT) {
    execvp("tandem-py", arguments.data());  // as PATH has it
  }
  if (errno != ENOENT) {
    return Failure(kFailed, absl::StrCat("cannot run tandem-py: ", strerror(errno)));
  }
  // As cmake/TandemInstall.cmake lays them out.
  const std::string prefix = context.own_folder.substr(0, context.own_folder.rfind('/'));
  const std::string package = absl::StrCat(prefix, "/share/tandem/python");
  std::error_code error;
  return Failure(
      kFailed,
      absl::StrCat("the program tandem-py is neither beside tandem nor on PATH; install it: pip install ",
                   std::filesystem::exists(package, error)
                       ? absl::StrCat("\"", package, extra, "\"")
                       : absl::StrCat("\"./python", extra, "\" in a clone of Tandem")));
}

}  // namespace

Outcome Data(Context& context, const DataOptions& options) {
  std::vector<std::string> words = {"data"};
  words.insert(words.end(), options.words.begin(), options.words.end());
  return Become(context, words, "[data]");
}

Outcome Follow(Context& context, const FollowOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const Address address, ResolveAddress(context.target, context.environment));
  std::vector<std::string> words = {"follow"};
  const auto add = [&words](const std::string& name, const std::string& value) {
    if (!value.empty()) {
      words.push_back(absl::StrCat(name, "=", value));  // a value may begin with -
    }
  };
  add("--addr", address.target);
  if (address.tls != nullptr) {
    add("--tls-ca", address.files.ca);
    add("--tls-cert", address.files.certificate);
    add("--tls-key", address.files.key);
    add("--tls-server-name", address.files.server_name);
  }
  add("--to", options.to);
  add("--out", options.out);
  add("--project", options.project);
  add("--norms-every", absl::StrCat(options.norms_every));
  if (options.offline) {
    words.emplace_back("--offline");
  }
  words.insert(words.end(), {"--", options.job});
  return Become(context, words, options.to == "csv" ? "" : absl::StrCat("[", options.to, "]"));
}

}  // namespace tandem::cli
