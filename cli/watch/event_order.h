// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "cli/watch/watch_state.h"
#include "tandem/v1/jobs.pb.h"

namespace tandem::cli {

// Puts the responses of a watch into the order in which they happened. Events and reports take different
// paths, and rank 0 reports a step only during the next one, so the checkpoint of step 3 may arrive before
// the report of step 1, and STOPPING before the report of the last step. An event of a step waits for the
// report of that step or of a later one, but only for a limited time, since reports may be dropped. Later
// events wait until it has gone. A report waits, as briefly, for the news that its attempt runs.
//
// Has no clock. Not thread-safe.
class EventOrder {
 public:
  // `now` never goes backwards.
  void Put(v1::WatchResponse response, absl::Time now);

  // Returns the next response to apply to `state`, or nullopt if none may go yet.
  std::optional<v1::WatchResponse> Take(const WatchState& state, absl::Time now);

  // From now on, nothing waits any more. To be called when no more reports can arrive.
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
