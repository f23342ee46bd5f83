// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/event_order.h"

#include <algorithm>
#include <utility>

#include "cli/terminal/message_text.h"

namespace tandem::cli {
namespace {

// While a job runs, the report that an event waits for comes with its next step.
constexpr absl::Duration kLongestWait = absl::Seconds(10);
// At its end the last reports come at once, or not at all.
constexpr absl::Duration kQuiet = absl::Milliseconds(300);
constexpr absl::Duration kLongestWaitAtEnd = absl::Seconds(2);
// How long a report waits for the news that its attempt runs.
constexpr absl::Duration kLongestWaitForRunning = absl::Seconds(2);

// A place in a job's history.
using Position = std::pair<int, int64_t>;  // attempt, step

bool IsEnding(const v1::Job& job) { return job.state() == v1::JOB_STATE_STOPPING || HasEnded(job.state()); }

// Returns the step whose report must come before `response`; step 0 if none must.
Position After(const v1::WatchResponse& response) {
  if (response.has_changed()) {
    const v1::Job& job = response.changed();
    return {job.attempt(), IsEnding(job) ? job.last_step() : 0};
  }
  // Other transitions have the step at which their attempt begins, which an earlier attempt has reported.
  const v1::Event& event = response.event();
  const bool under_way = event.from() == v1::JOB_STATE_RUNNING || event.from() == v1::JOB_STATE_STOPPING;
  return {event.attempt(), under_way ? std::max(event.step(), event.checkpoint().step()) : 0};
}

// Whether the news that the attempt of this report runs has not been shown yet.
bool IsEarly(const v1::WatchResponse& response, const WatchState& state) {
  const v1::JobState job = state.job.state();
  const int attempt = response.report().attempt();
  return response.has_report() && state.known && attempt > 0 &&
         (attempt > state.job.attempt() ||
          (attempt == state.job.attempt() &&
           (job == v1::JOB_STATE_QUEUED || job == v1::JOB_STATE_ADMITTED || job == v1::JOB_STATE_STARTING)));
}

}  // namespace

void EventOrder::Put(v1::WatchResponse response, absl::Time now) {
  if (response.has_event() || response.has_changed()) {
    events_.push_back({std::move(response), now});
  } else if (response.has_report() || response.has_table()) {
    last_report_ = now;
    reports_.push_back({std::move(response), now});
  } else {
    others_.push_back(std::move(response));
  }
}

bool EventOrder::MayGo(const Waiting& event, const WatchState& state, absl::Time now) const {
  const Position after = After(event.response);
  const bool reported =
      state.last.has_value() && Position(state.last->attempt(), state.last->step()) >= after;
  if (after.second == 0 || reported) {
    return true;
  }
  const bool ending = std::any_of(events_.begin(), events_.end(), [](const Waiting& waiting) {
    return waiting.response.has_changed() && IsEnding(waiting.response.changed());
  });
  return ending
             ? now - std::max(event.since, last_report_) >= kQuiet || now - event.since >= kLongestWaitAtEnd
             : now - event.since >= kLongestWait;
}

std::optional<v1::WatchResponse> EventOrder::Take(const WatchState& state, absl::Time now) {
  const auto pop = [](std::deque<Waiting>& waiting) {
    std::optional<v1::WatchResponse> out = std::move(waiting.front().response);
    waiting.pop_front();
    return out;
  };
  if (!others_.empty()) {
    std::optional<v1::WatchResponse> out = std::move(others_.front());
    others_.pop_front();
    return out;
  }
  if (!reports_.empty() && (!IsEarly(reports_.front().response, state) ||
                            now - reports_.front().since >= kLongestWaitForRunning)) {
    return pop(reports_);
  }
  if (!events_.empty() && (released_ || MayGo(events_.front(), state, now))) {
    return pop(events_);
  }
  return released_ && !reports_.empty() ? pop(reports_) : std::nullopt;
}

}  // namespace tandem::cli
