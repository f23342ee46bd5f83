// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "platform/build_info.h"

namespace tandem::cli {

Outcome Version(Context& context, Client& client) {
  const std::string& own = platform::BuildVersion();
  context.console.Write(Stream::kOut, absl::StrCat("client  ", own, "\n"));
  const absl::StatusOr<v1::ServerInfo> server = client.GetServerInfo(absl::Seconds(2));
  const std::string at = client.address().target;
  if (!server.ok()) {
    // A machine without a controller is an ordinary place to ask for the version.
    const bool asked = client.address().source == Address::Source::kFlag ||
                       client.address().source == Address::Source::kVariable;
    if (asked) {
      return server.status();
    }
    context.console.Write(Stream::kOut, absl::StrCat("server  none at ", at, "\n"));
    return kOk;
  }
  context.console.Write(Stream::kOut, absl::StrCat("server  ", Escape(server->build()), " at ", at, "\n"));
  if (server->build() != own) {
    Note(context.console,
         "client and server are of different builds; use the `tandem` that came with the server");
  }
  return kOk;
}

}  // namespace tandem::cli
