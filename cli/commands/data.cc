// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/error.h"
#include "platform/build_info.h"

namespace tandem::cli {

Outcome Data(Context& context, const DataOptions& options) {
  const std::string& build = platform::BuildVersion();
  std::vector<std::string> words = {"tandem-py", "--cli-version", build.substr(0, build.find('+')), "data"};
  words.insert(words.end(), options.words.begin(), options.words.end());
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
                   std::filesystem::exists(package, error) ? absl::StrCat("\"", package, "[data]\"")
                                                           : "\"./python[data]\" in a clone of Tandem"));
}

}  // namespace tandem::cli
