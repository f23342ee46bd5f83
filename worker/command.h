// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "worker/metrics_tail.h"
#include "worker/state.h"

namespace tandem::worker {

// An action that the core requests of the shell, in this order. No command blocks the core: answers come as
// inputs.

struct SendToController {  // lost if the stream has just broken; the next inventory repeats it
  v1::WorkerMessage message;
};
struct DropSession {  // close the stream and dial again
  std::string why;
};
struct Check {  // look at its paths, name its program → LookingAt for each path, then Checked
  v1::Assignment assignment;
};
struct RecordRanks {  // durable: these ranks will run → RanksRecorded
  AttemptKey attempt;
  std::string store_id;  // of the controller that assigned it
  std::vector<int> ranks;
};
struct RecordMetrics {  // durable soon: for a daemon that starts after this one's death
  AttemptKey attempt;
  MetricsPlace metrics;
};
struct Spawn {  // → RankSpawned or SpawnFailed
  RankKey rank;
  v1::Start start;
};
struct SendToRank {
  RankKey rank;
  v1::ToTrainer message;
};
struct Kill {  // SIGKILL to the process group of the rank
  RankKey rank;
};
struct RecordEnd {  // durable → EndRecorded
  v1::AttemptStatus status;
};
struct Forget {  // remove its record
  AttemptKey attempt;
};
struct RenewDeadline {  // of every page: now plus this; infinite: never
  absl::Duration after;
};
struct StartUpload {
  v1::UploadRequest request;
};
struct ExitProcess {
  std::string problem;  // empty: it was asked to
};

using Command = std::variant<SendToController, DropSession, Check, RecordRanks, RecordMetrics, Spawn,
                             SendToRank, Kill, RecordEnd, Forget, RenewDeadline, StartUpload, ExitProcess>;

// A change that the shell logs, or for which it keeps something beside the state.

struct Welcomed {
  int64_t term = 0;
};
struct AttemptAccepted {
  AttemptKey attempt;
  int num_ranks = 0;
};
struct AttemptRefused {
  AttemptKey attempt;
  v1::Cause cause;
};
struct AttemptStopped {
  AttemptKey attempt;
  std::string reason;
};
// Its controller does not know the attempt, so no decision to end it was made.
struct AttemptUnknown {
  AttemptKey attempt;
};
struct AttemptEnded {
  AttemptKey attempt;
};
struct RankStarted {
  RankKey rank;
  int64_t pid = 0;
};
struct RankFailed {
  RankKey rank;
  v1::Cause cause;
};
struct RankGone {
  RankKey rank;
  std::optional<v1::Cause> cause;  // nullopt: it finished
};

using Change = std::variant<Welcomed, AttemptAccepted, AttemptRefused, AttemptStopped, AttemptUnknown,
                            AttemptEnded, RankStarted, RankFailed, RankGone>;

}  // namespace tandem::worker
