// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "platform/log.h"
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
struct RecordEnd {  // durably, and free the ranks, which are all gone → EndRecorded
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

// A line for the daemon's log: about an attempt or, if `attempt` is empty, about the session.
struct LogLine {
  platform::LogLevel level = platform::LogLevel::kInfo;
  AttemptKey attempt = {};
  std::string text;
  std::optional<v1::Cause> cause = {};
};

using Command =
    std::variant<SendToController, DropSession, Check, RecordRanks, RecordMetrics, Spawn, SendToRank, Kill,
                 RecordEnd, Forget, RenewDeadline, StartUpload, ExitProcess, LogLine>;
using Commands = std::vector<Command>;

}  // namespace tandem::worker
