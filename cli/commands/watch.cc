// SPDX-License-Identifier: Apache-2.0

#include "absl/strings/str_cat.h"
#include "cli/cluster/address.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/interrupts.h"
#include "cli/terminal/job_text.h"
#include "cli/terminal/message_text.h"
#include "cli/watch/follow.h"
#include "cli/watch/watch_frame.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

constexpr char kInterrupted[] = "interrupted";
constexpr char kClosed[] = "output closed";
constexpr char kTooLate[] = "timeout";
constexpr char kGone[] = "gone";
// Ranks that have not heard from a controller for this long exit by themselves.
constexpr absl::Duration kGivenUpAfter = absl::Minutes(10);

// Why waiting for the lost controller makes no sense any more; empty while it does.
std::string WhyGone(const Context& context, const Address& address, const WatchState& state) {
  if (!state.lost.has_value()) {
    return "";
  }
  if (std::string ended = WhyNoneReturns(address, context.environment); !ended.empty()) {
    return ended;
  }
  if (context.clock.Now() - state.lost->since >= kGivenUpAfter) {
    return absl::StrCat("the controller at ", address.target, " has been away for ",
                        absl::FormatDuration(kGivenUpAfter), " (", Escape(state.lost->why),
                        "); ranks that hear of none for so long end by themselves; start it again, and watch "
                        "again to see what became of the job");
  }
  return "";
}

// Prints how a job ended, unless it succeeded. Returns its exit code.
ExitCode SayHowItEnded(Context& context, const v1::Job& job) {
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    const std::string why =
        job.state() == v1::JOB_STATE_FAILED && job.has_cause() ? CauseText(job.cause()) : ReasonText(job);
    Note(context.console, absl::StrCat(Escape(job.name()), " (", Escape(job.id()), ") ",
                                       StateText(job.state()), why.empty() ? "" : ": ", why));
  }
  return ExitCodeOf(job);
}

absl::Status TooLate(const std::string& what, absl::Duration timeout, const std::string& target,
                     const WatchState& state) {
  if (!state.known) {
    return absl::DeadlineExceededError("no answer in time");
  }
  const std::string after = absl::StrCat(what, ": after ", absl::FormatDuration(timeout));
  if (state.lost.has_value()) {
    return Failure(kTimeout,
                   absl::StrCat(after, " the controller at ", target, " is away (", Escape(state.lost->why),
                                "); the job was ", StateText(state.job.state()),
                                " when it was last heard of: wait longer"));
  }
  const std::string reason = ReasonText(state.job);
  return Failure(kTimeout, absl::StrCat(after, " the job is ", StateText(state.job.state()),
                                        reason.empty() ? "" : " (", reason, reason.empty() ? "" : ")",
                                        "; it continues: wait longer, or `tandem cancel` it"));
}

// Says after Ctrl-C that the job continues. did: "watching", command: "watch"; exists: whether the job is
// known to exist.
void SayThatItGoesOn(Context& context, const Client& client, const std::string& job, bool exists,
                     absl::string_view did, absl::string_view command) {
  const std::string name = Escape(job);
  Note(context.console, exists ? absl::StrCat("stopped ", did, "; the job goes on: `tandem ", command, " ",
                                              name, "` ", command == "wait" ? "waits" : "shows it",
                                              " again, `tandem cancel ", name, "` ends it")
                               : absl::StrCat("stopped ", did, "; the controller at ",
                                              client.address().target, " has said nothing of the job yet"));
}

// How following a job went.
struct Followed {
  absl::Status status;  // OK: the job has ended; or Cancelled with one of the words above
  std::string gone;     // why, after kGone
};

// Follows the job until it ends, `stop` returns one of the words above (empty: continue), Ctrl-C comes, or
// the controller is gone for good.
Followed Follow(Context& context, Client& client, const FollowRequest& request,
                const std::function<absl::string_view()>& stop, WatchState& state, WatchView& view) {
  Interrupts interrupts;
  Followed out;
  state.ends_with_controller = client.address().source == Address::Source::kUp;
  const auto keep_going = [&] {
    if (const absl::string_view word = stop(); !word.empty()) {
      return absl::CancelledError(word);
    }
    out.gone = WhyGone(context, client.address(), state);
    if (!out.gone.empty()) {
      return absl::CancelledError(kGone);
    }
    return interrupts.Count() > 0 ? absl::CancelledError(kInterrupted) : absl::OkStatus();
  };
  out.status = FollowJob(client, request, context.clock, keep_going, state, view);
  return out;
}

absl::Status FailureToFollow(const std::string& what, const Followed& followed) {
  return followed.status.message() == kGone ? Failure(kUnreachable, absl::StrCat(what, ": ", followed.gone))
                                            : followed.status;
}

}  // namespace

Outcome Watch(Context& context, Client& client, const WatchOptions& options) {
  context.what = absl::StrCat("watch ", Escape(options.job));
  const std::unique_ptr<WatchView> view =
      MakeWatchView(context.console, /*json=*/options.format == Format::kJson);
  WatchState state;
  const bool norms = options.format != Format::kJson && context.console.IsTerminal(Stream::kOut);
  const Followed followed = Follow(
      context, client, {.job = options.job, .norms = norms, .patient = options.patient},
      [&]() -> absl::string_view {
        return context.console.OutClosed() || context.console.ReaderHasLeft() ? kClosed : "";
      },
      state, *view);
  if (followed.status.ok()) {
    return ExitCodeOf(state.job);
  }
  if (followed.status.message() == kClosed) {
    return kOutputClosed;
  }
  if (followed.status.message() == kInterrupted) {
    SayThatItGoesOn(context, client, options.job, options.patient || state.known, "watching", "watch");
    return kCancelled;
  }
  return FailureToFollow(context.what, followed);
}

Outcome Wait(Context& context, Client& client, const WaitOptions& options) {
  const std::string what = context.what = absl::StrCat("wait ", Escape(options.job));
  WatchState state;
  if (options.timeout == absl::ZeroDuration()) {
    TANDEM_ASSIGN_OR_RETURN(state.job, client.GetJob(options.job));
    state.known = true;
    return HasEnded(state.job.state()) ? Outcome(SayHowItEnded(context, state.job))
                                       : TooLate(what, *options.timeout, client.address().target, state);
  }
  const absl::Time deadline =
      options.timeout.has_value() ? context.clock.Now() + *options.timeout : absl::InfiniteFuture();
  const std::unique_ptr<WatchView> view = MakeSilentView();
  const Followed followed = Follow(
      context, client, {.job = options.job, .reports = false, .patient = options.patient},
      [&]() -> absl::string_view { return context.clock.Now() >= deadline ? kTooLate : ""; }, state, *view);
  if (followed.status.ok()) {
    return SayHowItEnded(context, state.job);
  }
  if (followed.status.message() == kInterrupted) {
    SayThatItGoesOn(context, client, options.job, options.patient || state.known, "waiting", "wait");
    return kCancelled;
  }
  if (followed.status.message() == kTooLate) {
    return TooLate(what, *options.timeout, client.address().target, state);
  }
  return FailureToFollow(what, followed);
}

}  // namespace tandem::cli
