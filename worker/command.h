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

// A command is an action that the core asks the shell to do; the shell does them in order. No command blocks
// the core: answers arrive as inputs ("→" below).

struct SendToController {  // lost if the stream has just broken; the next inventory has the same content
  v1::WorkerMessage message;
};
struct DropSession {  // close the stream; the shell opens another later
  std::string why;
};
struct Check {  // inspect its paths and name its program → LookingAt for each path, then Checked
  v1::Assignment assignment;
};
struct RecordRanks {  // durably, that these ranks will run → RanksRecorded
  AttemptKey attempt;
  std::string store_id;  // of the controller that assigned it
  std::vector<int> ranks;
};
struct RecordMetrics {  // durably, without an answer: for a daemon that starts after this one has died
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
struct RecordEnd {  // durably → EndRecorded
  v1::AttemptStatus status;
};
struct Forget {  // remove the record of the attempt
  AttemptKey attempt;
};
struct RenewDeadline {  // orphan deadline of every page: `after` from now; infinite: never
  absl::Duration after;
};
struct StartUpload {
  v1::UploadRequest request;
};
struct ExitProcess {
  std::string problem;  // why it must exit; empty: it was asked to
};

using Command = std::variant<SendToController, DropSession, Check, RecordRanks, RecordMetrics, Spawn,
                             SendToRank, Kill, RecordEnd, Forget, RenewDeadline, StartUpload, ExitProcess>;

// A change is something that has happened to the state: the shell logs it, or updates what it keeps outside
// the state.

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
// The controller does not know the attempt. It may have lost the job, so the ranks go on.
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
