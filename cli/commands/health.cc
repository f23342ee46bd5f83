// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"

namespace tandem::cli {

int Health(Context& context, const HealthOptions& options) {
  const std::unique_ptr<Client> client = Dial(context);
  if (client == nullptr) {
    return kUsage;
  }
  const absl::Time until = context.clock.Now() + options.timeout;
  const absl::StatusOr<v1::ServerInfo> server = client->GetServerInfo(options.timeout);
  if (!server.ok()) {
    return Fail(context.console, CallError(server.status(), "health", client->address()));
  }
  // Answered by the thread that decides: a server whose threads for calls live on without it is not healthy.
  const absl::Duration left = std::max(until - context.clock.Now(), absl::Milliseconds(1));
  const absl::Status decides = client->CheckDecides(left);
  if (!decides.ok()) {
    return Fail(context.console, CallError(decides, "health", client->address()));
  }
  context.console.Write(Stream::kOut, absl::StrCat("SERVING  ", Escape(server->build()), " at ",
                                                   client->address().target, "\n"));
  return kOk;
}

}  // namespace tandem::cli
