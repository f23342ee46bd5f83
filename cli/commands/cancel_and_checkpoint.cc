// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "checkpoint/folder.h"
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
#include "proto/reasons.h"

namespace tandem::cli {
namespace {

constexpr absl::Duration kAskEvery = absl::Milliseconds(500);
constexpr absl::Duration kSayEvery = absl::Seconds(30);  // between notes on why it takes so long

std::string WhyNotYet(const v1::Job& job) {
  return absl::StrCat("job ", Escape(job.name()), " has not saved it yet",
                      job.has_progress() ? absl::StrCat(": ", ProgressText(job.progress())) : "");
}

// Polls the job until done(job), then returns true; false after Ctrl-C. Prints every 30 s why it takes so
// long. The error after `timeout` says that too, and `then`: what the user can do.
absl::StatusOr<bool> AwaitJob(Context& context, Client& client, v1::Job& job, absl::Duration timeout,
                              absl::string_view then, const std::function<bool(const v1::Job&)>& done) {
  const std::string& what = context.what;
  const Interrupts interrupts;
  const absl::Time begin = platform::SteadyClock().Now();
  absl::Time say_at = begin + kSayEvery;
  while (!done(job)) {
    const absl::Time now_at = platform::SteadyClock().Now();
    if (now_at - begin >= timeout) {
      return Failure(kTimeout, absl::StrCat(what, ": ", WhyNotYet(job), "; the request stays: ", then));
    }
    if (now_at >= say_at) {
      say_at = now_at + kSayEvery;
      Note(context.console,
           absl::StrCat(what, ": ", WhyNotYet(job), "; Ctrl-C stops waiting, and the request stays"));
    }
    if (interrupts.Count() > 0) {
      Note(context.console, absl::StrCat(what, ": the request stays; ", then));
      return false;
    }
    absl::SleepFor(kAskEvery);
    absl::StatusOr<v1::Job> now = client.GetJob(job.id());
    // The request is durable: it survives a restart of the controller.
    if (absl::IsUnavailable(now.status()) || absl::IsDeadlineExceeded(now.status()) ||
        absl::IsResourceExhausted(now.status())) {
      if (const std::string ended = WhyNoneReturns(client.address(), context.environment); !ended.empty()) {
        return Failure(kUnreachable, absl::StrCat(what, ": ", ended));
      }
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(job, std::move(now));
  }
  return true;
}

absl::Status EndedUnsaved(const Context& context, const v1::Job& job) {
  return Failure(kFailed, absl::StrCat(context.what, ": the job ended before it was saved: ",
                                       StateText(job.state()), ": ", ReasonText(job)));
}

}  // namespace

Outcome Cancel(Context& context, Client& client, const CancelOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(
      v1::Job job, client.Cancel(options.job, proto::ReasonCode("CancelledByUser"), options.checkpoint));
  const std::string at_once =
      absl::StrCat("`tandem cancel ", Escape(options.job), "` ends it without a checkpoint");
  if (!options.timeout.has_value()) {
    const bool stalled = options.checkpoint && job.progress().stalled();
    if (stalled || context.console.IsTerminal(Stream::kErr)) {
      Note(context.console,
           absl::StrCat("job ", Escape(job.name()), " (", Escape(job.id()), ") is ", StateText(job.state()),
                        HasEnded(job.state()) ? "" : "; `tandem wait` waits for its end",
                        stalled ? absl::StrCat("; ", WhyNotYet(job), "; ", at_once) : ""));
    }
    return kOk;
  }
  TANDEM_ASSIGN_OR_RETURN(const bool ended,
                          AwaitJob(context, client, job, *options.timeout, at_once,
                                   [](const v1::Job& now) { return HasEnded(now.state()); }));
  if (!ended) {
    return kCancelled;
  }
  const bool saved = job.checkpoints().last_step() >= job.last_step();
  if (options.checkpoint && !saved) {
    return EndedUnsaved(context, job);
  }
  if (job.state() == v1::JOB_STATE_FAILED) {
    return Failure(kFailed, absl::StrCat(context.what, ": the job failed: ", ReasonText(job)));
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
  const auto is_answered = [request](const v1::Job& now) { return now.checkpoints().answered() >= request; };
  TANDEM_ASSIGN_OR_RETURN(
      const bool done,
      AwaitJob(context, client, job, options.timeout,
               absl::StrCat("`tandem events ", Escape(options.job), "` shows when it is done"),
               [&](const v1::Job& now) { return is_answered(now) || HasEnded(now.state()); }));
  if (!done) {
    return kCancelled;
  }
  if (!is_answered(job)) {
    return EndedUnsaved(context, job);
  }
  const v1::CheckpointRecord& record = job.checkpoints();
  if (!record.answer_error().empty()) {
    return Failure(kFailed,
                   absl::StrCat(what, ": not saved, and training goes on: ", Escape(record.answer_error())));
  }
  context.Print(absl::StrCat(job.resolved().checkpoint().directory(), "/",
                             checkpoint::StepName(record.last_step()), "\n"));
  return kOk;
}

}  // namespace tandem::cli
