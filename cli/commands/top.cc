// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "cli/cluster/address.h"
#include "cli/commands/commands.h"
#include "cli/terminal/error.h"
#include "cli/terminal/interrupts.h"
#include "cli/top/top_frame.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

constexpr absl::Duration kDrawEvery = absl::Seconds(1);
constexpr absl::Duration kNap = absl::Milliseconds(100);
constexpr size_t kMostReports = 100;
constexpr size_t kMostReportsOfALook = 20;  // each costs one of the 50 calls a second that a user may make

constexpr v1::JobState kLive[] = {v1::JOB_STATE_QUEUED,  v1::JOB_STATE_ADMITTED, v1::JOB_STATE_STARTING,
                                  v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING, v1::JOB_STATE_SUSPENDED};

// Adds the newest report of a job, if there is one.
absl::Status AddReport(Client& client, const v1::Job& job, TopState& state) {
  return client.ListReports(job.id(), job.last_step(), 0, /*norms=*/false,
                            [&](const v1::ListReportsResponse& page) {
                              if (page.reports_size() > 0) {
                                state.reports[job.id()] = page.reports(page.reports_size() - 1);
                              }
                              return true;
                            });
}

// `before`: the state of the last look, whose reports are kept until they are read again; `turn` counts the
// looks.
absl::StatusOr<TopState> Look(Client& client, int rows, const TopState& before, size_t turn, size_t most) {
  TopState state;
  TANDEM_ASSIGN_OR_RETURN(state.jobs, client.ListJobs({std::begin(kLive), std::end(kLive)}, /*brief=*/true));
  TANDEM_ASSIGN_OR_RETURN(state.workers, client.ListWorkers());
  std::vector<std::string> shown = JobsWithReports(state);
  shown.resize(std::min({shown.size(), kMostReports, rows > 0 ? static_cast<size_t>(rows) : kMostReports}));
  for (const std::string& id : shown) {
    if (const auto it = before.reports.find(id); it != before.reports.end()) {
      state.reports.insert(*it);
    }
  }
  for (size_t i = 0; i < std::min(most, shown.size()); ++i) {
    const std::string& id = shown[(turn * most + i) % shown.size()];
    const auto job = std::find_if(state.jobs.begin(), state.jobs.end(),
                                  [&id](const v1::Job& each) { return each.id() == id; });
    TANDEM_RETURN_IF_ERROR(AddReport(client, *job, state));
  }
  return state;
}

}  // namespace

Outcome Top(Context& context, Client& client, const TopOptions& options) {
  const bool once = options.once || !context.console.IsTerminal(Stream::kOut);
  const Interrupts interrupts;
  bool drawn = false;
  TopState seen;
  for (size_t turn = 0;; ++turn) {
    const TerminalSize size = context.console.Size();
    absl::StatusOr<TopState> state =
        Look(client, once ? 0 : size.rows, seen, turn, once ? kMostReports : kMostReportsOfALook);
    const bool busy = absl::IsResourceExhausted(state.status()) || absl::IsDeadlineExceeded(state.status());
    const bool may_return = drawn && (busy || absl::IsUnavailable(state.status()));
    if (!state.ok() && !may_return) {
      return state.status();
    }
    if (!state.ok() && !busy) {
      if (const std::string ended = WhyNoneReturns(client.address(), context.environment); !ended.empty()) {
        return Failure(kUnreachable, absl::StrCat(context.what, ": ", ended));
      }
    }
    if (state.ok()) {
      seen = *state;
    } else if (busy) {
      state = seen;  // shows the last look again
    }
    std::string text = state.ok() ? RenderTop(*state, {context.TableWidth(), once ? 0 : size.rows},
                                              context.console.unicode(), context.clock.Now())
                                  : absl::StrCat("no controller answers at ", client.address().target, "\n");
    if (once) {
      context.Print(text);
      return kOk;
    }
    // Each line is overwritten to its end, then what is below is cleared, so nothing flickers.
    context.Print(absl::StrCat(drawn ? "\x1b[H" : "\x1b[2J\x1b[H",
                               absl::StrReplaceAll(text, {{"\n", "\x1b[K\n"}}), "\x1b[J"));
    drawn = true;
    for (absl::Duration slept; slept < kDrawEvery; slept += kNap) {
      if (interrupts.Count() > 0 || context.console.OutClosed()) {
        return context.console.OutClosed() ? kOutputClosed : kOk;
      }
      absl::SleepFor(kNap);
    }
  }
}

}  // namespace tandem::cli
