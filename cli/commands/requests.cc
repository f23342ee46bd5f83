// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/cluster/address.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/interrupts.h"
#include "cli/terminal/job_text.h"
#include "cli/terminal/message_text.h"
#include "cli/watch/watch_frame.h"
#include "platform/clock.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

constexpr absl::Duration kAskEvery = absl::Milliseconds(500);
constexpr absl::Duration kSayEvery = absl::Seconds(30);  // why it takes so long

std::string WhyNotYet(const v1::Job& job) {
  return absl::StrCat("job ", Escape(job.name()), " has not saved it yet",
                      job.has_progress() ? absl::StrCat(": ", ProgressText(job.progress())) : "");
}

}  // namespace

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

Outcome CheckpointNow(Context& context, Client& client, const CheckpointOptions& options) {
  const std::string& what = context.what;
  TANDEM_ASSIGN_OR_RETURN(v1::Job job, client.Checkpoint(options.job));
  const int64_t request = job.checkpoints().requested();
  if (options.no_wait) {
    return kOk;
  }
  const Interrupts interrupts;
  const absl::Time begin = platform::SteadyClock().Now();
  absl::Time say_at = begin + kSayEvery;
  while (job.checkpoints().answered() < request) {
    const absl::Time now_at = platform::SteadyClock().Now();
    if (now_at - begin >= options.timeout) {
      return Failure(kTimeout,
                     absl::StrCat(what, ": ", WhyNotYet(job), "; the request stays: `tandem events ",
                                  Escape(options.job), "` shows when it is done"));
    }
    if (now_at >= say_at) {
      say_at = now_at + kSayEvery;
      Note(context.console,
           absl::StrCat(what, ": ", WhyNotYet(job), "; Ctrl-C stops waiting, and the request stays"));
    }
    if (HasEnded(job.state())) {
      return Failure(kFailed, absl::StrCat(what, ": the job ended before it was saved: ",
                                           StateText(job.state()), ": ", ReasonText(job)));
    }
    if (interrupts.Count() > 0) {
      Note(context.console, absl::StrCat(what, ": the request stays; `tandem events ", Escape(options.job),
                                         "` shows when it is done"));
      return kCancelled;
    }
    absl::SleepFor(kAskEvery);
    absl::StatusOr<v1::Job> now = client.GetJob(job.id());
    // The request is durable: it outlives a controller that is restarted, or busy.
    if (absl::IsUnavailable(now.status()) || absl::IsDeadlineExceeded(now.status()) ||
        absl::IsResourceExhausted(now.status())) {
      if (const std::string ended = WhyNoneReturns(client.address(), context.environment); !ended.empty()) {
        return Failure(kUnreachable, absl::StrCat(what, ": ", ended));
      }
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(job, std::move(now));
  }
  const v1::CheckpointRecord& record = job.checkpoints();
  if (!record.answer_error().empty()) {
    return Failure(kFailed,
                   absl::StrCat(what, ": not saved, and training goes on: ", Escape(record.answer_error())));
  }
  context.console.Write(Stream::kOut, absl::StrCat(job.resolved().checkpoint().directory(), "/step-",
                                                   record.last_step(), "\n"));
  return kOk;
}

}  // namespace tandem::cli
