#pragma once

#include <memory>
#include <optional>

#include "cli/cluster/client.h"
#include "cli/commands/commands.h"
#include "cli/terminal/error.h"

namespace tandem::cli {

// The client of the controller that a command talks to; where the address is bad, the error is printed and
// there is none: exit with kUsage.
std::unique_ptr<Client> Dial(Context& context);

// The width that tables may use: that of the terminal, 0 (no limit) where standard output is none.
int TableWidth(const Context& context);

// Follows a job with its output (watch, submit --follow, run): FollowJob, Ctrl-C ends the watch only. Returns
// the exit code.
int WatchToEnd(Context& context, Client& client, const std::string& job, Format format, bool patient);

// The same in silence, until `timeout` (submit --wait, wait).
int WaitToEnd(Context& context, Client& client, const std::string& job, std::optional<absl::Duration> timeout,
              bool patient);

}  // namespace tandem::cli
