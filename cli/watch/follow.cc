// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/follow.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "cli/cluster/watch_stream.h"
#include "cli/terminal/message_text.h"
#include "cli/watch/event_order.h"
#include "cli/watch/watch_frame.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kFirstReconnectPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
// Reports and the job's state take different paths, so the last reports may come after its end.
constexpr absl::Duration kQuietAfterEnd = absl::Milliseconds(300);
constexpr absl::Duration kLongestDrain = absl::Seconds(2);
constexpr int64_t kHistorySteps = 2000;
constexpr int kLastLogLines = 20;

// Whether trying again can help.
bool IsAway(const absl::Status& status) {
  return !absl::IsNotFound(status) && !absl::IsInvalidArgument(status) && !absl::IsPermissionDenied(status) &&
         !absl::IsUnauthenticated(status) && !absl::IsUnimplemented(status);
}

class Follower {
 public:
  Follower(Client& client, const FollowRequest& request, const platform::Clock& clock,
           const std::function<absl::Status()>& keep_going, WatchState& state, WatchView& view)
      : client_(client),
        request_(request),
        clock_(clock),
        keep_going_(keep_going),
        state_(state),
        view_(view) {}

  absl::Status Run() {
    const absl::Status status = Watch();
    if (status.ok() && request_.reports) {
      FillReports(/*before=*/0);
    }
    if (status.ok() || state_.known) {
      view_.Finish(state_, clock_.Now());
    }
    if (status.ok() && request_.reports) {
      ShowLogOfFailedRank();
    }
    return status;
  }

 private:
  absl::Status Watch() {
    absl::Duration pause = kFirstReconnectPause;
    while (true) {
      const absl::Status status = WatchOnce(pause);
      if (ended_ || !status.ok()) {
        return status;
      }
      TANDEM_RETURN_IF_ERROR(Pause(pause));
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  // Follows one stream to its end. OK: try again, unless ended_: the job has ended.
  absl::Status WatchOnce(absl::Duration& pause) {
    v1::WatchRequest watch;
    // Its id: another job may have taken its name since, or have an id that begins with the same characters.
    watch.set_job(state_.known ? state_.job.id() : request_.job);
    watch.set_cursor(state_.cursor);
    watch.set_reports(request_.reports);
    watch.set_norms(request_.norms);
    WatchStream stream(client_.address(), watch);
    order_ = EventOrder();
    if (!request_.reports) {
      order_.Release();
    }
    v1::WatchResponse response;
    absl::Time quiet_since = clock_.Now();
    absl::Time ended_since = absl::InfiniteFuture();
    while (true) {
      TANDEM_RETURN_IF_ERROR(keep_going_());
      const WatchStream::Event event = stream.Next(kTick, response);
      const absl::Time now = clock_.Now();
      if (event == WatchStream::Event::kResponse) {
        quiet_since = now;
        pause = kFirstReconnectPause;
        connected_ = true;
        if (state_.lost.has_value()) {
          state_.lost.reset();
          view_.Show(state_, {.connection = true}, now);
        }
        order_.Put(std::exchange(response, {}), now);
      } else {
        view_.Show(state_, {}, now);
      }
      if (event == WatchStream::Event::kClosed) {
        order_.Release();
      }
      while (const std::optional<v1::WatchResponse> next = order_.Take(state_, now)) {
        Take(*next, now);
      }
      if (state_.known && HasEnded(state_.job.state())) {
        ended_since = std::min(ended_since, now);
        const bool complete = !request_.reports || (state_.last.has_value() && TotalSteps(state_) > 0 &&
                                                    state_.last->step() >= TotalSteps(state_));
        if (complete || event == WatchStream::Event::kClosed || now - quiet_since >= kQuietAfterEnd ||
            now - ended_since >= kLongestDrain) {
          ended_ = true;
          return absl::OkStatus();
        }
      } else if (event == WatchStream::Event::kClosed) {
        return Closed(stream.status(), now);
      }
    }
  }

  absl::Status Closed(const absl::Status& status, absl::Time now) {
    if (status.code() == absl::StatusCode::kOutOfRange) {
      state_.cursor.clear();  // the events are gone: starts from a snapshot; repeats are dropped
      return absl::OkStatus();
    }
    if (!status.ok() && (!IsAway(status) || (!connected_ && !request_.patient))) {
      return status;
    }
    if (!state_.lost.has_value()) {
      const std::string why(status.ok() ? "it closed the watch" : status.message());
      state_.lost =
          WatchState::Lost{now, why.substr(why.rfind(": ") == std::string::npos ? 0 : why.rfind(": ") + 2)};
      view_.Show(state_, {.connection = true}, now);
    }
    return absl::OkStatus();
  }

  void Take(const v1::WatchResponse& response, absl::Time now) {
    if (response.has_report()) {
      const v1::StepReport& report = response.report();
      const int64_t next = state_.last.has_value() ? state_.last->step() + 1 : 1;
      const bool same_attempt = !state_.last.has_value() || state_.last->attempt() == report.attempt();
      if (same_attempt && report.step() > next) {
        FillReports(/*before=*/report.step());
      }
    }
    view_.Show(state_, Apply(response, now, /*live=*/true, state_), now);
    if (request_.reports && response.has_snapshot() && response.snapshot().last_step() > 0) {
      FillReports(/*before=*/0);
    }
  }

  // Reads the reports between the newest step and `before` (0: all there are) from the history. If it cannot
  // be read, the display has a gap, but the job goes on.
  void FillReports(int64_t before) {
    const int64_t newest = std::max(before - 1, state_.job.last_step());
    const bool joins = !state_.last.has_value();
    const int64_t first = joins ? std::max<int64_t>(0, newest - kHistorySteps + 1) : state_.last->step() + 1;
    if (joins && first > 0) {
      FindValidation(first);
    }
    const absl::Status status = client_.ListReports(
        state_.known ? state_.job.id() : request_.job, first, std::max<int64_t>(0, before - 1),
        /*norms=*/false, [&](const v1::ListReportsResponse& page) {
          for (const v1::StepReport& report : page.reports()) {
            const absl::Time now = clock_.Now();
            view_.Show(state_, ApplyReport(report, now, /*live=*/false, state_), now);
          }
          return keep_going_().ok();
        });
    static_cast<void>(status);
  }

  // Reads the newest validation before the step `before`, since no other reports are read from there.
  void FindValidation(int64_t before) {
    const int64_t every = state_.job.resolved().training().validate_every_steps();
    if (every <= 0) {
      return;
    }
    const int64_t step = (before - 1) / every * every;
    const absl::Status status = client_.ListReports(
        state_.job.id(), step, std::max<int64_t>(1, step), /*norms=*/false,  // 0 would be all of them
        [&](const v1::ListReportsResponse& page) {
          for (const v1::StepReport& report : page.reports()) {
            const absl::Time now = clock_.Now();
            view_.Show(state_, ApplyValidation(report, state_), now);
          }
          return true;
        });
    static_cast<void>(status);
  }

  void ShowLogOfFailedRank() {
    const int rank = RankToBlame(state_.job);
    if (rank < 0) {
      return;
    }
    v1::LogRequest log;
    log.set_job(state_.job.id());
    log.set_rank(rank);
    log.set_tail_lines(kLastLogLines);
    std::string text;
    const absl::Status status = client_.ReadLog(log, [&](const v1::LogChunk& chunk) {
      text += chunk.error().empty() ? chunk.data() : "(" + chunk.error() + ")\n";
      return true;
    });
    if (!status.ok()) {
      text = "(cannot be read: " + std::string(status.message()) + ")";
    }
    std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
    if (lines.size() > kLastLogLines) {
      lines.erase(lines.begin(), lines.end() - kLastLogLines);
    }
    if (!lines.empty()) {
      view_.ShowLog(rank, lines);
    }
  }

  absl::Status Pause(absl::Duration pause) {
    const absl::Time until = platform::SteadyClock().Now() + pause;
    while (platform::SteadyClock().Now() < until) {
      TANDEM_RETURN_IF_ERROR(keep_going_());
      view_.Show(state_, {}, clock_.Now());
      absl::SleepFor(std::clamp(until - platform::SteadyClock().Now(), absl::ZeroDuration(), kTick));
    }
    return absl::OkStatus();
  }

  Client& client_;
  const FollowRequest& request_;
  const platform::Clock& clock_;
  const std::function<absl::Status()>& keep_going_;
  WatchState& state_;
  WatchView& view_;
  EventOrder order_;
  bool connected_ = false;
  bool ended_ = false;
};

}  // namespace

absl::Status FollowJob(Client& client, const FollowRequest& request, const platform::Clock& clock,
                       const std::function<absl::Status()>& keep_going, WatchState& state, WatchView& view) {
  return Follower(client, request, clock, keep_going, state, view).Run();
}

ExitCode ExitCodeOf(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_SUCCEEDED:
      return kOk;
    case v1::JOB_STATE_CANCELLED:
      return kCancelled;
    default:
      return job.cause().class_() == v1::FAILURE_CLASS_PREEMPTED ? kPreempted : kFailed;
  }
}

}  // namespace tandem::cli
