// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "platform/build_info.h"
#include "platform/net_address.h"
#include "platform/status_macros.h"
#include "proto/time.h"

namespace tandem::cli {

Outcome Version(Context& context, Client& client) {
  const std::string& own = platform::BuildVersion();
  context.Print(absl::StrCat("client      ", own, "\n"));
  const absl::StatusOr<v1::ServerInfo> server = client.GetServerInfo(absl::Seconds(2));
  const std::string at = client.address().target;
  if (!server.ok()) {
    // A machine without a controller is an ordinary place to ask for the version.
    if (client.address().source != Address::Source::kDefault) {
      return server.status();
    }
    context.Print(absl::StrCat("controller  none at ", at, "\n"));
    return kOk;
  }
  context.Print(absl::StrCat("controller  ", Escape(server->build()), " at ", at, "\n"));
  if (server->build() != own) {
    Note(context.console,
         "client and controller are of different builds; use the `tandem` that came with the controller");
  }
  return kOk;
}

Outcome Health(Context& context, Client& client, const HealthOptions& options) {
  const absl::Time until = context.clock.Now() + options.timeout;
  TANDEM_ASSIGN_OR_RETURN(const v1::ServerInfo server, client.GetServerInfo(options.timeout));
  // The thread that decides must answer, because a server in which only the threads for calls still run is
  // not healthy.
  const absl::Duration left = std::max(until - context.clock.Now(), absl::Milliseconds(1));
  TANDEM_RETURN_IF_ERROR(client.CheckDecides(left));
  const bool stores = server.store_error().empty();
  context.Print(absl::StrCat(stores ? "SERVING  " : "DEGRADED  ", Escape(server.build()), " at ",
                             client.address().target, "\n"));
  return stores ? absl::StatusOr<ExitCode>(kOk)
                : Failure(kFailed,
                          absl::StrCat(context.what,
                                       ": the controller accepts no jobs and changes the state of none: ",
                                       Escape(server.store_error()), "; make room on that file system"));
}

Outcome SignIn(Context& context, Client& client, const SignInOptions&) {
  TANDEM_ASSIGN_OR_RETURN(const v1::SignInResponse made, client.SignIn());
  // Behind the #, so that the browser keeps the code to itself until the page's script sends it.
  context.Print(absl::StrCat("http://", Escape(made.page()), "/#/sign-in/", made.code(), "\n"));
  std::string note =
      absl::StrCat("sign-in: open this within ", absl::FormatDuration(proto::FromProto(made.code_life())),
                   ", once; the browser is then ", Escape(made.caller()));
  const std::string& target = client.address().target;
  if (!client.address().is_here()) {
    absl::StrAppend(&note, "; the page is on the controller's machine: first `ssh -N -L ",
                    Escape(made.page()), ":", Escape(made.page()), " ", Escape(platform::HostOf(target)),
                    "`");
  }
  Note(context.console, note);
  return kOk;
}

}  // namespace tandem::cli
