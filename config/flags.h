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

// Adds a daemon's options --tls-ca, --tls-cert and --tls-key to `app`. They set `files`, which must outlive
// `app`.
void AddTlsFlags(CLI::App& app, tls::TlsFiles& files);

// Prints `line` as a usage error: the command line is wrong on every machine. Returns 2, the only exit code
// of a failure after which a service manager does not restart the daemon. For a problem that may go away (a
// missing file or folder, a port in use) a daemon exits with 1 instead, and is restarted.
int Refuse(const CLI::App& app, const std::string& line);

// Returns a line for each option that was given an empty value, among the options of `app` and of the
// commands used: "--user: its value is empty; give one, or omit it". So `--user "$USER"` without USER is not
// taken for a command line without --user.
std::vector<std::string> EmptyValues(const CLI::App& app);

// Sets the options of `app` from the command line. Options that are not given there are set from the config
// file (config_file.h), whose keys are names of options; its path is the value of --config, an option that
// this function adds. Values in the file are checked as if they were on the command line, even if the command
// line overrides them.
//
// Returns nullopt to continue, otherwise the exit code: 0 after --help and --version, 1 if the file cannot be
// read, 2 after a usage error. Errors are printed to standard error, all errors of a file at once.
std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv);

}  // namespace tandem::config
