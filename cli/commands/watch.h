#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "cli/cluster/client.h"
#include "cli/commands/commands.h"

namespace tandem::cli {

// Follows a job with its output (watch, submit --follow, run): FollowJob, Ctrl-C ends the watch only. Returns
// the exit code.
int WatchToEnd(Context& context, Client& client, const std::string& job, Format format, bool patient);

// The same in silence, until `timeout` (submit --wait, wait).
int WaitToEnd(Context& context, Client& client, const std::string& job, std::optional<absl::Duration> timeout,
              bool patient);

}  // namespace tandem::cli
