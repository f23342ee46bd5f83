#include "worker/core.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "platform/check.h"

namespace tandem::worker {

Turn Handle(WorkerState& state, const Input& input, absl::Time now) {
  // A stop needs 4: decide it, ask the ranks, record the end, report it.
  constexpr int kMaxRounds = 16;
  Turn turn;
  Work work{.events = Decide(state, input, now)};
  for (int round = 0; round == 0 || !work.events.empty(); ++round) {
    TANDEM_CHECK(round < kMaxRounds, "the worker's state comes to rest");
    for (const Event& event : work.events) Apply(event, state);
    std::move(work.events.begin(), work.events.end(), std::back_inserter(turn.events));
    work = Converge(state, now);
    std::move(work.commands.begin(), work.commands.end(), std::back_inserter(turn.commands));
  }
  return turn;
}

absl::Time NextWake(const WorkerState& state) {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [key, attempt] : state.live) {
    if (!attempt.stop) continue;
    for (const auto& [number, rank] : attempt.ranks) {
      if (rank.life != Life::kRunning || rank.kill_sent) continue;
      next = std::min(next, rank.stop_sent ? rank.kill_at : attempt.stop->begin);
    }
  }
  if (state.session.hello_sent) {
    for (const Notice& notice : state.notices) next = std::min(next, notice.sent_at + kNoticePeriod);
  }
  if (!state.exit_sent) next = std::min(next, state.shutdown_at + kShutdownLimit);
  return next;
}

}  // namespace tandem::worker
