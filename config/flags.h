// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tandem::tls {
struct TlsFiles;
}

namespace tandem::config {

// Adds --tls-ca, --tls-cert and --tls-key of a daemon to `app`. `files` must outlive `app`.
void AddTlsFlags(CLI::App& app, tls::TlsFiles& files);

// Prints `line` as a usage error, which is one on every machine. Returns 2, the one exit code after which a
// service manager does not start the daemon again. What this machine lacks now (a file, a folder, a port) is
// no usage error: the daemon then exits with 1, and is started again.
int Refuse(const CLI::App& app, const std::string& line);

// Returns a line, "--user: its value is empty; give one, or omit it", for each option with an empty value, of
// `app` and of the commands that were given. So `--user "$USER"` without USER is not taken for a command line
// without --user.
std::vector<std::string> EmptyValues(const CLI::App& app);

// Sets the options of `app` from the command line, and those that it does not have from the file that
// --config names (config_file.h), whose keys are names of options. Adds --config to `app`. Values in the file
// are checked as those on the command line are, also those that the command line overrides.
//
// Returns nullopt if the program goes on, else the code to exit with: 0 after --help and --version, 1 if the
// file cannot be read, 2 after a usage error. Errors are on standard error, all those of a file at once.
std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv);

}  // namespace tandem::config
