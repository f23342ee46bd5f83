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
#include "worker/processes.h"
#include "worker/state.h"

namespace tandem::worker {

// An input is something that happened to the daemon. The shell creates inputs; Step decides what follows.

struct Connected {           // a stream to a controller is open
  std::string data_address;  // at which ranks on other workers reach the ranks here
};
struct Disconnected {};  // that stream is gone
struct FromController {
  v1::ControllerMessage message;
};

// The command Check sends this before it inspects each path, and after the last one. Check hangs as long as
// the file system does.
struct LookingAt {
  AttemptKey attempt;
  std::string what;  // "data.train /mnt/corpus"; empty: all paths have answered
};
struct Checked {
  AttemptKey attempt;
  std::string violations;  // what is wrong with the job's files; empty: nothing
  std::string problem;     // of this machine, such as a path that hangs; empty: none
  std::string reason;      // of `problem`, in CamelCase
  InstructionNames program;
};

// The answer to the command RecordRanks.
struct RanksRecorded {
  AttemptKey attempt;
  std::string problem;  // of this machine; empty: none
  std::string reason;   // of `problem`, in CamelCase
};

// The two answers to the command Spawn, and the exit that follows RankSpawned.
struct RankSpawned {
  RankKey rank;
  ProcessId process;
};
struct SpawnFailed {
  RankKey rank;
  std::string why;
};
struct RankExited {
  RankKey rank;
  Exit exit;
  PageSample sample;  // taken after the exit
};

// A message of a rank; all of them arrive before its RankExited. Reports and tables are no inputs
// (report_queue.h).
struct FromRank {
  RankKey rank;
  v1::FromTrainer message;
  std::optional<PageSample> sample;  // of the page, only with a Failed message
};

// Once per heartbeat interval: samples of the pages of all running ranks.
struct Sampled {
  std::vector<std::pair<RankKey, PageSample>> samples;
};

// The answer to RecordEnd: the record is on disk. If it could not be written, the shell has logged that, and
// the end is sent to the controller all the same.
struct EndRecorded {
  AttemptKey attempt;
};

// A signal asks the daemon to end. Jobs with ranks here have the time `drain` to save a checkpoint and end;
// then their ranks are stopped. A second request can shorten that time but not extend it.
struct ShutdownAsked {
  absl::Duration drain;
};
struct Woken {};  // the time of NextWake has come

using Input =
    std::variant<Connected, Disconnected, FromController, LookingAt, Checked, RanksRecorded, RankSpawned,
                 SpawnFailed, RankExited, FromRank, Sampled, EndRecorded, ShutdownAsked, Woken>;

}  // namespace tandem::worker
