// SPDX-License-Identifier: Apache-2.0

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/message_text.h"
#include "platform/status_macros.h"

namespace tandem::cli {

Outcome Cancel(Context& context, Client& client, const CancelOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const v1::Job job,
                          client.Cancel(options.job, "CancelledByUser", options.checkpoint));
  if (context.console.IsTerminal(Stream::kErr)) {
    Note(context.console,
         absl::StrCat("job ", Escape(job.name()), " (", Escape(job.id()), ") is ", StateText(job.state()),
                      HasEnded(job.state()) ? "" : "; `tandem wait` waits for its end"));
  }
  return kOk;
}

}  // namespace tandem::cli
