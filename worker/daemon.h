// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "platform/random.h"
#include "worker/controller_client.h"
#include "worker/job_checks.h"
#include "worker/launcher.h"
#include "worker/mailbox.h"
#include "worker/records.h"
#include "worker/report_queue.h"
#include "worker/spawner.h"
#include "worker/step.h"
#include "worker/uploads.h"

namespace tandem::worker {

struct DaemonConfig {
  ControllerAddress controller;
  Settings settings;  // all but the incarnation, which the daemon draws
  std::string state_folder;
  std::string trainer;                         // path of tandem-trainer
  std::optional<RunAs> run_as = std::nullopt;  // the user that ranks run as; nullopt: that of this process
  ReportLimits report_limits;
  std::shared_ptr<RankGroups> rank_groups = nullptr;  // null: ranks are in this process's control group
};

// The daemon is a pure core in a shell. The core: Step (step.h) takes an Input (input.h), changes WorkerState
// (state.h), and returns Commands (command.h). The shell is Daemon, which owns
//
//   ControllerClient   the streams to the controller
//   Launcher           the trainers, through Spawner and RankGroups
//   CheckThreads       checks of a job's files and paths
//   Records            what must survive the daemon's death
//   ReportQueue        the reports of steps, which bypass the core
//   Uploads            logs and profiles, which bypass the core
//
// An attempt passes through: assignment, Check, RecordRanks, Spawn, RankExited, RecordEnd, Forget.

// The worker daemon: passes one input after another to the core, and executes the core's commands on
// processes, files and streams. One thread runs it; other threads add the inputs.
class Daemon {
 public:
  class RecoveredReports;

  // Locks the state directory and recovers what an earlier daemon left (Records::Recover). The clock must not
  // jump (SteadyClock).
  static absl::StatusOr<std::unique_ptr<Daemon>> Open(DaemonConfig config, const JobChecks& checks,
                                                      const platform::Clock& clock, platform::Random& random,
                                                      platform::Files& files);
  ~Daemon();

  // Runs until no rank is left after AskShutdown. Returns FailedPreconditionError as soon as the controller
  // refuses this worker for good.
  absl::Status Run();

  // Asks the daemon to end. `drain` is the time of ShutdownAsked. Callable from any thread.
  void AskShutdown(absl::Duration drain) { inputs_.Put(ShutdownAsked{drain}); }

 private:
  Daemon(DaemonConfig config, const JobChecks& checks, const platform::Clock& clock, platform::Random& random,
         Records records, WorkerState state, const std::map<AttemptKey, MetricsPlace>& places);

  void Do(const Command& command);
  void Write(const LogLine& line);
  void RecoverReports(const std::map<AttemptKey, MetricsPlace>& places);
  void WriteRanks(const RecordRanks& command);
  void RecordProcess(const RankSpawned& spawned);
  void WriteAgain(const AttemptKey& attempt, const RanksRecord& record);
  void TrimLogs(const Sampled& sampled);

  const DaemonConfig config_;
  const platform::Clock& clock_;
  platform::Random& random_;
  WorkerState state_;
  Mailbox<Input> inputs_;
  bool ended_ = false;
  std::string problem_;

  Records records_;                              // used only by records_thread_, except LogFile
  const int64_t most_log_bytes_;                 // of a running rank
  std::atomic<bool> trimming_ = false;           // the logs of running ranks are being trimmed
  std::map<AttemptKey, RanksRecord> processes_;  // used only by records_thread_
  ReportQueue reports_;
  std::shared_ptr<RecoveredReports> recovered_;  // shared with the thread that reads them
  // Threads that use the members above. They are destroyed in reverse order, so that those that add inputs
  // end first.
  std::unique_ptr<TaskThread> records_thread_;
  std::unique_ptr<CheckThreads> checks_;
  std::unique_ptr<Uploads> uploads_;  // receives steps from launcher_
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<ControllerClient> client_;
};

}  // namespace tandem::worker
