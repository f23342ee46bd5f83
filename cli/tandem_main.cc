// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/command_line.h"
#include "cli/commands/commands.h"
#include "cli/terminal/console.h"
#include "cli/terminal/error.h"
#include "platform/program_start.h"

namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

tandem::cli::Environment ReadEnvironment() {
  tandem::cli::Environment environment;
  environment.tandem_addr = Variable("TANDEM_ADDR");
  environment.tandem_context = Variable("TANDEM_CONTEXT");
  environment.tandem_tls_ca = Variable("TANDEM_TLS_CA");
  environment.tandem_tls_cert = Variable("TANDEM_TLS_CERT");
  environment.tandem_tls_key = Variable("TANDEM_TLS_KEY");
  environment.tandem_tls_server_name = Variable("TANDEM_TLS_SERVER_NAME");
  environment.home = Variable("HOME");
  environment.xdg_config_home = Variable("XDG_CONFIG_HOME");
  environment.xdg_state_home = Variable("XDG_STATE_HOME");
  environment.term = Variable("TERM");
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (environment.locale.empty()) {
      environment.locale = Variable(name);
    }
  }
  environment.no_color = !Variable("NO_COLOR").empty();
  return environment;
}

// Returns the exit code of the process: never success if output could not be written.
int Ended(tandem::cli::Console& console, int exit_code) {
  if (!console.OutClosed()) {
    return exit_code;
  }
  const std::string error = console.OutError();
  return error.empty() ? tandem::cli::kOutputClosed
                       : tandem::cli::Fail(
                             console, absl::AbortedError(absl::StrCat(error, "; the output is incomplete")),
                             "cannot write standard output");
}

}  // namespace

int main(int argc, char** argv) {
  tandem::platform::IgnoreLockCycles();
  const tandem::cli::Environment environment = ReadEnvironment();
  const std::unique_ptr<tandem::cli::Console> console = tandem::cli::MakeSystemConsole(environment);
  try {
    const tandem::cli::Invocation invocation = tandem::cli::ParseCommandLine(argc, argv);
    if (!invocation.command) {
      if (invocation.exit_code == 0) {
        console->Write(tandem::cli::Stream::kOut, invocation.text);
        return Ended(*console, tandem::cli::kOk);
      }
      return tandem::cli::Fail(*console, tandem::cli::Failure(invocation.exit_code, invocation.text), "");
    }
    const std::filesystem::path self = tandem::platform::BesideThisProgram("tandem");
    // The steady clock cannot be set, so nothing that is timed comes early or never.
    tandem::cli::Context context{.console = *console,
                                 .clock = tandem::platform::SteadyClock(),
                                 .environment = environment,
                                 .target = invocation.target,
                                 .own_folder = self.has_parent_path() ? self.parent_path().string() : "."};
    return Ended(*console, invocation.command(context));
  } catch (const std::exception& error) {  // a bug of ours; no stack trace helps the user
    return tandem::cli::Fail(*console, absl::InternalError(error.what()), "internal error");
  }
}
