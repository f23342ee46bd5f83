#pragma once

#include <optional>
#include <string>

#include "cli/cluster/client.h"
#include "cli/commands/commands.h"
#include "cli/terminal/error.h"
#include "tandem/v1/job.pb.h"

namespace tandem::cli {

// Submits a spec that LoadJobFile accepted. A controller that refuses it says why, on standard error, in its
// own words, and `failed` gets the exit code.
std::optional<v1::Job> SubmitSpec(Context& context, Client& client, const v1::JobSpec& spec,
                                  const std::string& request_id, int& failed);

}  // namespace tandem::cli
