// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/message_text.h"

namespace tandem::cli {

int Cancel(Context& context, Client& client, const CancelOptions& options) {
  const absl::StatusOr<v1::Job> job = client.Cancel(options.job, "CancelledByUser", options.checkpoint);
  if (!job.ok()) {
    return Fail(context, client, job.status(), absl::StrCat("cancel ", Escape(options.job)));
  }
  if (context.console.IsTerminal(Stream::kErr)) {
    Note(context.console,
         absl::StrCat("job ", Escape(job->name()), " (", Escape(job->id()), ") is ", StateText(job->state()),
                      HasEnded(job->state()) ? "" : "; `tandem wait` waits for its end"));
  }
  return kOk;
}

}  // namespace tandem::cli
