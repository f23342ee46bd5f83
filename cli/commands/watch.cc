#include "cli/commands/watch.h"

#include "absl/strings/str_cat.h"
#include "cli/cluster/state_folder.h"
#include "cli/commands/commands.h"
#include "cli/terminal/cause_text.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "cli/terminal/interrupts.h"
#include "cli/terminal/message_text.h"
#include "cli/watch/follow.h"
#include "cli/watch/watch_frame.h"

namespace tandem::cli {
namespace {

constexpr char kInterrupted[] = "interrupted";
constexpr char kClosed[] = "output closed";
constexpr char kTooLate[] = "timeout";
constexpr char kGone[] = "gone";
// Ranks that hear of no controller for so long end by themselves.
constexpr absl::Duration kGivenUpAfter = absl::Minutes(10);

// Why it makes no sense to go on waiting for the controller that was lost; empty while it does.
std::string WhyGone(const Context& context, const Address& address, const WatchState& state) {
  if (!state.lost.has_value()) {
    return "";
  }
  if (address.source == Address::Source::kUp) {
    const absl::StatusOr<std::string> root = StateRoot(context.environment);
    const std::optional<RunningUp> up = root.ok() ? FindRunningUp(UpFolder(*root)) : std::nullopt;
    if (!up.has_value() || up->address != address.target) {
      return "the `tandem up` at " + address.target +
             " has ended, and its running jobs with it; queued ones go on with the next `tandem up`";
    }
  }
  if (context.clock.Now() - state.lost->since >= kGivenUpAfter) {
    return absl::StrCat("the controller at ", address.target, " has been away for ",
                        absl::FormatDuration(kGivenUpAfter), " (", Escape(state.lost->why),
                        "); ranks that hear of none for so long end by themselves; start it again, and watch "
                        "again to see what became of the job");
  }
  return "";
}

// Says how a job has ended, where it is not as one would wish. Its exit code.
int SayHowItEnded(Context& context, const v1::Job& job) {
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    const std::string why =
        job.state() == v1::JOB_STATE_FAILED && job.has_cause() ? CauseText(job.cause()) : ReasonText(job);
    Note(context.console, absl::StrCat(Escape(job.name()), " (", Escape(job.id()), ") ",
                                       StateText(job.state()), why.empty() ? "" : ": ", why));
  }
  return ExitCodeOf(job);
}

int TooLate(Context& context, const std::string& what, absl::Duration timeout, const WatchState& state) {
  const std::string now = !state.known ? "has not been seen" : "is " + StateText(state.job.state());
  const std::string reason = state.known ? ReasonText(state.job) : "";
  return Fail(context.console, kTimeout,
              absl::StrCat(what, ": after ", absl::FormatDuration(timeout), " the job ", now,
                           reason.empty() ? "" : " (", reason, reason.empty() ? "" : ")",
                           "; it goes on: wait longer, or `tandem cancel` it"));
}

}  // namespace

int WatchToEnd(Context& context, Client& client, const std::string& job, Format format, bool patient) {
  Interrupts interrupts;
  const std::unique_ptr<WatchView> view =
      MakeWatchView(context.console, format == Format::kJson ? WatchOutput::kJson : WatchOutput::kText);
  WatchState state;
  std::string gone;
  const auto keep_going = [&] {
    if (context.console.OutClosed()) {
      return absl::CancelledError(kClosed);
    }
    gone = WhyGone(context, client.address(), state);
    if (!gone.empty()) {
      return absl::CancelledError(kGone);
    }
    return interrupts.Count() > 0 ? absl::CancelledError(kInterrupted) : absl::OkStatus();
  };
  const bool norms = format != Format::kJson && context.console.IsTerminal(Stream::kOut);
  const absl::Status status = FollowJob(client, {.job = job, .norms = norms, .patient = patient},
                                        context.clock, keep_going, state, *view);
  if (status.ok()) {
    return ExitCodeOf(state.job);
  }
  if (status.message() == kClosed) {
    return kOutputClosed;
  }
  if (status.message() == kInterrupted) {
    Note(context.console, absl::StrCat("stopped watching; the job goes on: `tandem watch ", Escape(job),
                                       "` shows it again, `tandem cancel ", Escape(job), "` ends it"));
    return kCancelled;
  }
  const std::string what = absl::StrCat("watch ", Escape(job));
  if (status.message() == kGone) {
    return Fail(context.console, kUnreachable, absl::StrCat(what, ": ", gone));
  }
  return Fail(context.console, CallError(status, what, client.address()));
}

int WaitToEnd(Context& context, Client& client, const std::string& job, std::optional<absl::Duration> timeout,
              bool patient) {
  const std::string what = absl::StrCat("wait ", Escape(job));
  WatchState state;
  if (timeout == absl::ZeroDuration()) {
    const absl::StatusOr<v1::Job> now = client.GetJob(job);
    if (!now.ok()) {
      return Fail(context.console, CallError(now.status(), what, client.address()));
    }
    state.job = *now;
    state.known = true;
    return HasEnded(now->state()) ? SayHowItEnded(context, *now) : TooLate(context, what, *timeout, state);
  }
  Interrupts interrupts;
  const absl::Time deadline = timeout.has_value() ? context.clock.Now() + *timeout : absl::InfiniteFuture();
  const std::unique_ptr<WatchView> view = MakeSilentView();
  std::string gone;
  const auto keep_going = [&] {
    if (context.clock.Now() >= deadline) {
      return absl::CancelledError(kTooLate);
    }
    gone = WhyGone(context, client.address(), state);
    if (!gone.empty()) {
      return absl::CancelledError(kGone);
    }
    return interrupts.Count() > 0 ? absl::CancelledError(kInterrupted) : absl::OkStatus();
  };
  const absl::Status status = FollowJob(client, {.job = job, .reports = false, .patient = patient},
                                        context.clock, keep_going, state, *view);
  if (status.ok()) {
    return SayHowItEnded(context, state.job);
  }
  if (status.message() == kInterrupted) {
    return kCancelled;
  }
  if (status.message() == kTooLate) {
    return TooLate(context, what, *timeout, state);
  }
  if (status.message() == kGone) {
    return Fail(context.console, kUnreachable, absl::StrCat(what, ": ", gone));
  }
  return Fail(context.console, CallError(status, what, client.address()));
}

int Watch(Context& context, const WatchOptions& options) {
  const std::unique_ptr<Client> client = Dial(context);
  return client == nullptr ? kUsage
                           : WatchToEnd(context, *client, options.job, options.format, /*patient=*/false);
}

int Wait(Context& context, const WaitOptions& options) {
  const std::unique_ptr<Client> client = Dial(context);
  return client == nullptr ? kUsage
                           : WaitToEnd(context, *client, options.job, options.timeout, /*patient=*/false);
}

}  // namespace tandem::cli
