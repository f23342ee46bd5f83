// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"

namespace tandem::cli {

int Health(Context& context, Client& client, const HealthOptions& options) {
  const absl::Time until = context.clock.Now() + options.timeout;
  const absl::StatusOr<v1::ServerInfo> server = client.GetServerInfo(options.timeout);
  if (!server.ok()) {
    return Fail(context, client, server.status(), "health");
  }
  // Answered by the thread that decides: a server whose threads for calls live on without it is not healthy.
  const absl::Duration left = std::max(until - context.clock.Now(), absl::Milliseconds(1));
  const absl::Status decides = client.CheckDecides(left);
  if (!decides.ok()) {
    return Fail(context, client, decides, "health");
  }
  context.console.Write(Stream::kOut, absl::StrCat("SERVING  ", Escape(server->build()), " at ",
                                                   client.address().target, "\n"));
  return kOk;
}

}  // namespace tandem::cli
