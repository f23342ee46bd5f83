// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "platform/status_macros.h"
#include "proto/time.h"

namespace tandem::cli {

Outcome SignIn(Context& context, Client& client, const SignInOptions&) {
  TANDEM_ASSIGN_OR_RETURN(const v1::SignInResponse made, client.SignIn());
  // Behind the #, so that the browser keeps the code to itself until the page's script sends it.
  context.console.Write(Stream::kOut,
                        absl::StrCat("http://", Escape(made.page()), "/#/sign-in/", made.code(), "\n"));
  std::string note =
      absl::StrCat("sign-in: open this within ", absl::FormatDuration(proto::FromProto(made.code_life())),
                   ", once; the browser is then ", Escape(made.caller()));
  const std::string& target = client.address().target;
  if (!client.address().is_here()) {
    absl::StrAppend(&note, "; the page is on the controller's machine: first `ssh -N -L ",
                    Escape(made.page()), ":", Escape(made.page()), " ",
                    Escape(target.substr(0, target.rfind(':'))), "`");
  }
  Note(context.console, note);
  return kOk;
}

}  // namespace tandem::cli
