#pragma once

#include <vector>

#include "absl/time/time.h"
#include "worker/command.h"
#include "worker/event.h"
#include "worker/input.h"
#include "worker/state.h"

namespace tandem::worker {

// Between Stop and SIGKILL, where the assignment does not say.
inline constexpr absl::Duration kDefaultGrace = absl::Milliseconds(500);
// After a rank lost a peer: if the peer is one of ours, its own death is seen within this time, before the
// stop could be taken for its cause.
inline constexpr absl::Duration kPeerLostPause = absl::Milliseconds(100);
// A checkpoint that is not acknowledged is told again.
inline constexpr absl::Duration kNoticePeriod = absl::Seconds(5);
// What a session may be silent, on either side of the welcome: the controller beats once a second. gRPC's
// keepalive says the same, but by timers that stand still after the wall clock was set back.
inline constexpr absl::Duration kLongestSilence = absl::Seconds(15);
// After this the daemon ends even where ranks cannot be killed (they die with it).
inline constexpr absl::Duration kShutdownLimit = absl::Seconds(3);
// Of checkpoints that are not acknowledged: the oldest are given up (they are on disk all the same).
inline constexpr size_t kMaxNotices = 1000;

// What an input makes true. Pure: same arguments, same events.
std::vector<Event> Decide(const WorkerState& state, const Input& input, absl::Time now);

// Makes one event true; decides nothing. An event of an attempt or rank that is not live changes nothing.
void Apply(const Event& event, WorkerState& state);

// What the state calls for and has not been done: commands, and the events that say they are done. Pure. The
// same call after Apply of these events gives nothing more to do, or what follows from them.
struct Work {
  std::vector<Event> events;
  std::vector<Command> commands;
};
Work Converge(const WorkerState& state, absl::Time now);

// When Converge would find more to do though nothing happened.
absl::Time NextWake(const WorkerState& state);

// One turn of the daemon: Decide, Apply, then Converge and Apply until there is nothing to do. `events` are
// all that were applied (for the log).
struct Turn {
  std::vector<Event> events;
  std::vector<Command> commands;
};
Turn Handle(WorkerState& state, const Input& input, absl::Time now);

}  // namespace tandem::worker
