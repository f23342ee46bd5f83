#include "cli/command_client.h"

#include "absl/strings/str_cat.h"
#include "cli/cause_text.h"
#include "cli/display_text.h"
#include "cli/follow.h"
#include "cli/interrupts.h"
#include "cli/message_text.h"
#include "cli/watch_frame.h"

namespace tandem::cli {
namespace {

constexpr char kInterrupted[] = "interrupted";
constexpr char kClosed[] = "output closed";
constexpr char kTooLate[] = "timeout";

}  // namespace

std::unique_ptr<Client> Dial(Context& context) {
  const absl::StatusOr<Address> address = ResolveAddress(context.addr, context.environment);
  if (!address.ok()) {
    Note(context.console, address.status().message());
    return nullptr;
  }
  return std::make_unique<Client>(*address);
}

int TableWidth(const Context& context) {
  return context.console.IsTerminal(Stream::kOut) ? context.console.Size().columns : 0;
}

int WatchToEnd(Context& context, Client& client, const std::string& job, Format format, bool patient) {
  Interrupts interrupts;
  const std::unique_ptr<WatchView> view =
      MakeWatchView(context.console, format == Format::kJson ? WatchOutput::kJson : WatchOutput::kText);
  WatchState state;
  const auto keep_going = [&] {
    if (context.console.OutClosed()) {
      return absl::CancelledError(kClosed);
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
  return Fail(context.console, CallError(status, absl::StrCat("watch ", Escape(job)), client.address()));
}

int WaitToEnd(Context& context, Client& client, const std::string& job, std::optional<absl::Duration> timeout,
              bool patient) {
  Interrupts interrupts;
  const absl::Time deadline = timeout.has_value() ? absl::Now() + *timeout : absl::InfiniteFuture();
  const std::unique_ptr<WatchView> view = MakeSilentView();
  WatchState state;
  const auto keep_going = [&] {
    if (absl::Now() >= deadline) {
      return absl::CancelledError(kTooLate);
    }
    return interrupts.Count() > 0 ? absl::CancelledError(kInterrupted) : absl::OkStatus();
  };
  const absl::Status status = FollowJob(client, {.job = job, .reports = false, .patient = patient},
                                        context.clock, keep_going, state, *view);
  if (status.ok()) {
    if (state.job.state() != v1::JOB_STATE_SUCCEEDED) {
      const std::string why = state.job.state() == v1::JOB_STATE_FAILED && state.job.has_cause()
                                  ? CauseText(state.job.cause())
                                  : ReasonText(state.job);
      Note(context.console, absl::StrCat(Escape(state.job.name()), " (", Escape(state.job.id()), ") ",
                                         StateText(state.job.state()), why.empty() ? "" : ": ", why));
    }
    return ExitCodeOf(state.job);
  }
  if (status.message() == kInterrupted) {
    return kCancelled;
  }
  if (status.message() == kTooLate) {
    const std::string now = !state.known ? "has not been seen" : "is " + StateText(state.job.state());
    const std::string reason = state.known ? ReasonText(state.job) : "";
    return Fail(context.console, kTimeout,
                absl::StrCat("wait ", Escape(job), ": after ", absl::FormatDuration(*timeout), " the job ",
                             now, reason.empty() ? "" : " (", reason, reason.empty() ? "" : ")",
                             "; it goes on: wait longer, or `tandem cancel` it"));
  }
  return Fail(context.console, CallError(status, absl::StrCat("wait ", Escape(job)), client.address()));
}

}  // namespace tandem::cli
