// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "cli/watch/watch_state.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::cli {

// Puts what a watch receives in the order in which it happened. Events and reports come on two roads, and
// rank 0 reports a step only during the next one, so the checkpoint of step 3 may arrive before the report of
// step 1, and STOPPING before that of the last step. What speaks of a step waits for the report of that step
// or of a later one, but not without limit: reports may be dropped. What follows an event waits with it.
//
// Plain data, no clock. Not thread-safe.
class EventOrder {
 public:
  // `now` never goes backwards.
  void Put(v1::WatchResponse response, absl::Time now);

  // The next response that may be shown after `state`; none for now.
  std::optional<v1::WatchResponse> Take(const WatchState& state, absl::Time now);

  // From now on nothing waits: no more reports come.
  void Release() { released_ = true; }

 private:
  struct Waiting {
    v1::WatchResponse response;
    absl::Time since;
  };

  bool MayGo(const Waiting& event, const WatchState& state, absl::Time now) const;

  std::deque<Waiting> events_;   // and the jobs that they changed
  std::deque<Waiting> reports_;  // and the tables of their norms
  std::deque<v1::WatchResponse> others_;
  absl::Time last_report_ = absl::InfinitePast();
  bool released_ = false;
};

}  // namespace tandem::cli
