// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "platform/status_macros.h"

namespace tandem::cli {

Outcome Health(Context& context, Client& client, const HealthOptions& options) {
  const absl::Time until = context.clock.Now() + options.timeout;
  TANDEM_ASSIGN_OR_RETURN(const v1::ServerInfo server, client.GetServerInfo(options.timeout));
  // Answered by the thread that decides: a server whose threads for calls live on without it is not healthy.
  const absl::Duration left = std::max(until - context.clock.Now(), absl::Milliseconds(1));
  TANDEM_RETURN_IF_ERROR(client.CheckDecides(left));
  context.console.Write(
      Stream::kOut, absl::StrCat("SERVING  ", Escape(server.build()), " at ", client.address().target, "\n"));
  return kOk;
}

}  // namespace tandem::cli
