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

// --tls-ca, --tls-cert and --tls-key of a daemon. `files` outlives `app`.
void AddTlsFlags(CLI::App& app, tls::TlsFiles& files);

// Says on standard error, in a line, that the call itself is wrong: what no machine allows. The code to exit
// with, 2: a service manager starts a daemon again after any other. What this machine lacks (a file, a
// folder, a port) may come; that ends with 1.
int Refuse(const CLI::App& app, const std::string& line);

// "--user: its value is empty; give one, or omit it": a line for each option of `app`, and of those of its
// commands that were called, one of whose values is empty. A variable that is not set, in quotes, must not
// mean that the option is not there.
std::vector<std::string> EmptyValues(const CLI::App& app);

// Gives the options of `app` what the command line says, and those that are not in it what the file says that
// --config names (config_file.h): each key is the name of an option. Adds --config to `app`, and asks of the
// file what the options ask of the command line; what it says of an option that the command line has is
// checked too, though it has no effect.
// nullopt: go on. Else the code to exit with: 0 after --help and --version, 1 where the file cannot be read,
// 2 after a usage error, whose lines (all those of a file at once) stand on standard error.
std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv);

}  // namespace tandem::config
