#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cli/cluster/address.h"
#include "cli/terminal/console.h"
#include "cli/terminal/exit_code.h"

namespace tandem::cli {

// What a command failed with, for people: one line that says what failed, where, and what to do next.
struct Error {
  ExitCode code = kFailed;
  std::string text;
};

// A call to the controller that failed. `what`: "cancel headers".
Error CallError(const absl::Status& status, absl::string_view what, const Address& address);

// Prints "tandem: ...", a line, on standard error. Returns the exit code.
int Fail(Console& console, const Error& error);
int Fail(Console& console, ExitCode code, absl::string_view text);

// "tandem: ...", a line, on standard error.
void Note(Console& console, absl::string_view text);

}  // namespace tandem::cli
