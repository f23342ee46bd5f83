// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "worker/cause.h"
#include "worker/instruction_names.h"
#include "worker/state.h"

namespace tandem::worker {

// Everything that can happen to the daemon. The shell makes the inputs; Step decides what follows.

struct Connected {           // a stream to a controller is open
  std::string data_address;  // at which ranks on other workers reach the ranks of this one
};
struct Disconnected {};  // it is gone
struct FromController {
  v1::ControllerMessage message;
};

// What the command Check reports before it looks at each path, and after the last one. It may hang for as
// long as a file system does.
struct LookingAt {
  AttemptKey attempt;
  std::string what;  // "data.train /mnt/corpus"; empty: all have answered
};
struct Checked {
  AttemptKey attempt;
  std::string violations;  // of the files that the job needs; empty if there are none
  std::string problem;     // of this machine, as a path of the job that hangs here; empty if there is none
  std::string reason;      // of it, CamelCase
  InstructionNames program;
};

// The answer to the command RecordRanks.
struct RanksRecorded {
  AttemptKey attempt;
  std::string problem;  // of this machine; empty: none
  std::string reason;   // of it, CamelCase
};

// The answers to the command Spawn, and the end that follows the first of them.
struct RankSpawned {
  RankKey rank;
  int64_t pid = 0;
};
struct SpawnFailed {
  RankKey rank;
  std::string why;
};
struct RankExited {
  RankKey rank;
  Exit exit;
  PageSample sample;  // taken after the death
};

// Comes before the RankExited of its rank. Reports and tables do not come here (report_queue.h).
struct FromRank {
  RankKey rank;
  v1::FromTrainer message;
  std::optional<PageSample> sample;  // with Failed: where it was then
};

// Once a heartbeat: the pages of all running ranks.
struct Sampled {
  std::vector<std::pair<RankKey, PageSample>> samples;
};

// The answer to RecordEnd: the record is on disk, or could not be written (which the shell has logged; an end
// that is only in memory is still sent).
struct EndRecorded {
  AttemptKey attempt;
};

// SIGTERM. The jobs that have ranks here get this long to save a checkpoint and end; then the ranks are
// stopped. Asked again with less, they have less; with more, they do not have more.
struct ShutdownAsked {
  absl::Duration drain;
};
struct Woken {};  // NextWake has come

using Input =
    std::variant<Connected, Disconnected, FromController, LookingAt, Checked, RanksRecorded, RankSpawned,
                 SpawnFailed, RankExited, FromRank, Sampled, EndRecorded, ShutdownAsked, Woken>;

}  // namespace tandem::worker
