// SPDX-License-Identifier: Apache-2.0
#include "worker/daemon.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "platform/failpoint.h"
#include "platform/log.h"
#include "platform/regular_file.h"
#include "platform/status_macros.h"
#include "platform/thread.h"
#include "proto/reasons.h"
#include "worker/log_limit.h"
#include "worker/step.h"

namespace tandem::worker {
namespace {

using platform::Log;
using platform::LogLevel;

// Pages are sampled once a second at least.
absl::Duration HeartbeatInterval(const WorkerState& state) {
  return std::clamp(state.heartbeat_interval, absl::Milliseconds(50), absl::Seconds(1));
}

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace

// The parts of the daemon that a thread needs which may hang forever, and so outlive the daemon.
class Daemon::RecoveredReports {
 public:
  explicit RecoveredReports(ReportQueue& reports) : reports_(&reports) {}

  void Add(const AttemptKey& attempt, std::vector<v1::StepReport> reports) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (reports_ != nullptr) {
      reports_->AddRecovered(attempt, std::move(reports));
    }
  }
  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    reports_ = nullptr;
  }

 private:
  absl::Mutex mu_;
  ReportQueue* reports_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Open(DaemonConfig config, const JobChecks& checks,
                                                     const platform::Clock& clock, platform::Random& random,
                                                     platform::Files& files) {
  TANDEM_ASSIGN_OR_RETURN(Records records, Records::Open(files, config.state_folder));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<v1::AttemptStatus> ends,
                          records.Recover(config.settings.worker_id, clock.Now()));
  TANDEM_ASSIGN_OR_RETURN(const auto places, records.MetricsPlaces());
  WorkerState state{.settings = config.settings};
  state.settings.incarnation = random.Next64();
  for (const v1::AttemptStatus& end : ends) {
    state.ended[KeyOf(end.id())] = {.status = end};
  }
  return std::unique_ptr<Daemon>(
      new Daemon(std::move(config), checks, clock, random, std::move(records), std::move(state), places));
}

Daemon::Daemon(DaemonConfig config, const JobChecks& checks, const platform::Clock& clock,
               platform::Random& random, Records records, WorkerState state,
               const std::map<AttemptKey, MetricsPlace>& places)
    : config_(std::move(config)),
      clock_(clock),
      random_(random),
      state_(std::move(state)),
      records_(std::move(records)),
      most_log_bytes_(MostLogBytes(DiskBytes(config_.state_folder).value_or(int64_t{1} << 40),
                                   config_.settings.slots.size())),
      reports_(clock, config_.report_limits),
      recovered_(std::make_shared<RecoveredReports>(reports_)) {
  RecoverReports(places);
  const auto sink = [this](Input input) { inputs_.Put(std::move(input)); };
  records_thread_ = std::make_unique<TaskThread>();
  checks_ = std::make_unique<CheckThreads>(checks, clock_, sink);
  uploads_ = std::make_unique<Uploads>(Uploads::Logs{
      .file = [this](const RankKey& rank) { return records_.LogFile(rank); },
      .is_live = [this](const AttemptKey& attempt) { return launcher_->Has(attempt); },
      .kept = records_.log_limits().ToText(),
  });
  launcher_ = std::make_unique<Launcher>(
      config_.trainer, config_.run_as, config_.rank_groups.get(), reports_, *uploads_, [this](Input input) {
        if (const RankSpawned* const spawned = std::get_if<RankSpawned>(&input)) {
          records_thread_->Run([this, spawned = *spawned] { RecordProcess(spawned); });
        }
        inputs_.Put(std::move(input));
      });
  client_ = std::make_unique<ControllerClient>(config_.controller, random_, reports_, sink);
}

Daemon::~Daemon() {
  // Threads that feed the daemon end before what they feed.
  recovered_->Close();
  uploads_->Stop();
  client_.reset();
  launcher_.reset();
}

absl::Status Daemon::Run() {
  absl::Time last_heartbeat = absl::InfinitePast();
  while (!ended_) {
    std::optional<Input> input;
    const absl::Time next_heartbeat =
        last_heartbeat + HeartbeatInterval(state_);  // a Welcome may have changed the interval
    if (const absl::Time before = clock_.Now(); before >= next_heartbeat) {
      Sampled sampled{launcher_->Sample()};
      TrimLogs(sampled);
      input = std::move(sampled);
      last_heartbeat = before;
    } else {
      const absl::Time wake = std::min(next_heartbeat, NextWake(state_));
      input = inputs_.Take(std::max(absl::ZeroDuration(), wake - before));
      if (!input) {
        input = Woken{};
      }
    }
    const absl::Time now = clock_.Now();
    for (const Command& command : Step(state_, *input, now)) {
      Do(command);
    }
  }
  if (state_.session.hello_sent) {
    constexpr absl::Duration kLastReports = absl::Seconds(1);
    constexpr absl::Duration kLastMessages = absl::Seconds(2);
    if (!reports_.WaitUntilEmpty(kLastReports)) {
      Log(LogLevel::kWarning, "the controller has not acknowledged the last reports");
    }
    client_->Stop(kLastMessages);
  }
  return problem_.empty() ? absl::OkStatus() : absl::FailedPreconditionError(problem_);
}

void Daemon::Do(const Command& command) {
  std::visit(Overloaded{
                 [this](const SendToController& c) { client_->Send(c.message); },
                 [this](const DropSession& c) {
                   Log(LogLevel::kWarning, "closing the session", {{"reason", c.why}});
                   client_->Drop();
                 },
                 [this](const Check& c) { checks_->Start(c.assignment); },
                 [this](const RecordRanks& c) { records_thread_->Run([this, c] { WriteRanks(c); }); },
                 [this](const RecordMetrics& c) {
                   records_thread_->Run([this, c] {
                     if (const auto it = processes_.find(c.attempt); it != processes_.end()) {
                       it->second.metrics = c.metrics;
                       WriteAgain(c.attempt, it->second);
                     }
                   });
                 },
                 [this](const Spawn& c) { launcher_->Spawn(c.rank, c.start, records_.LogFile(c.rank)); },
                 [this](const SendToRank& c) { launcher_->Send(c.rank, c.message); },
                 [this](const Kill& c) { launcher_->Kill(c.rank); },
                 [this](const RecordEnd& c) {
                   const AttemptKey attempt = KeyOf(c.status.id());
                   checks_->Drop(attempt);
                   launcher_->Remove(attempt);
                   reports_.Ended(attempt);
                   records_thread_->Run([this, attempt, status = c.status] {
                     processes_.erase(attempt);
                     if (const absl::Status written = records_.WriteEnd(status); !written.ok()) {
                       Log(LogLevel::kError,
                           "the end of an attempt could not be recorded; it is kept in memory only",
                           {{"job", status.id().job_id()}, {"error", std::string(written.message())}});
                     }
                     inputs_.Put(EndRecorded{attempt});
                   });
                 },
                 [this](const Forget& c) {
                   reports_.Forget(c.attempt);
                   records_thread_->Run([this, attempt = c.attempt] {
                     if (const absl::Status removed = records_.Forget(attempt); !removed.ok()) {
                       Log(LogLevel::kWarning, "the record of an attempt could not be removed",
                           {{"error", std::string(removed.message())}});
                     }
                   });
                 },
                 [this](const RenewDeadline& c) { launcher_->SetOrphanDeadline(c.after); },
                 [this](const StartUpload& c) {
                   uploads_->Start(client_->bulk_channel(), c.request);
                   if (c.request.has_profile()) {
                     v1::ToTrainer message;
                     *message.mutable_profile() = c.request.profile();
                     launcher_->Send({KeyOf(c.request.id()), c.request.rank()}, std::move(message));
                   }
                 },
                 [this](const ExitProcess& c) {
                   ended_ = true;
                   problem_ = c.problem;
                 },
                 [this](const LogLine& c) { Write(c); },
             },
             command);
}

void Daemon::Write(const LogLine& line) {
  const std::string attempt = absl::StrCat(line.attempt.attempt);
  if (line.attempt.job.empty()) {
    Log(line.level, line.text,
        {{"address", config_.controller.target}, {"term", absl::StrCat(state_.highest_term)}});
  } else if (line.cause) {
    Log(line.level, line.text,
        {{"job", line.attempt.job},
         {"attempt", attempt},
         {"reason", line.cause->reason()},
         {"cause", line.cause->message()}});
  } else {
    Log(line.level, line.text, {{"job", line.attempt.job}, {"attempt", attempt}});
  }
}

// Recovers reports that died with the former daemon before it sent them. Runs on a thread of its own,
// because the file system of a job may hang forever.
void Daemon::RecoverReports(const std::map<AttemptKey, MetricsPlace>& places) {
  if (places.empty()) {
    return;
  }
  absl::StatusOr<std::thread> thread = platform::StartThread([recovered = recovered_, places] {
    for (const auto& [attempt, place] : places) {
      std::vector<v1::StepReport> reports = ReadMetricsTail(platform::SystemFiles(), attempt.job, place);
      if (!reports.empty()) {
        recovered->Add(attempt, std::move(reports));
      }
    }
  });
  if (thread.ok()) {
    thread->detach();
  }
}

// Written before any rank starts, so that the next daemon knows every rank that may outlive this one.
void Daemon::WriteRanks(const RecordRanks& command) {
  RanksRecord record{.store_id = command.store_id};
  for (const int rank : command.ranks) {
    record.ranks[rank] = {};
  }
  RanksRecorded recorded{.attempt = command.attempt};
  if (const absl::Status written = records_.WriteRanks(command.attempt, record); !written.ok()) {
    const absl::string_view remedy = platform::RemedyOf(written);
    recorded.problem =
        absl::StrCat(written.message(), "; ", remedy.empty() ? "repair that file system" : remedy);
    recorded.reason = absl::IsOutOfRange(written) ? proto::ReasonCode("WorkerLimits")
                                                  : proto::ReasonCode("WorkerDisk");  // of open files
  }
  processes_[command.attempt] = std::move(record);
  TANDEM_FAILPOINT("worker.after_accept");
  inputs_.Put(std::move(recorded));
}

// Trims on another thread, because the disk may not answer for a while.
void Daemon::TrimLogs(const Sampled& sampled) {
  if (sampled.samples.empty() || trimming_.exchange(true)) {
    return;
  }
  std::vector<RankKey> ranks;
  for (const auto& [rank, sample] : sampled.samples) {
    ranks.push_back(rank);
  }
  records_thread_->Run([this, ranks = std::move(ranks)] {
    for (const RankKey& rank : ranks) {
      const absl::StatusOr<int64_t> dropped = TrimLog(records_.LogFile(rank), most_log_bytes_);
      if (!dropped.ok() || *dropped > 0) {
        Log(LogLevel::kWarning,
            dropped.ok() ? "a rank prints so much that the oldest part of its log was dropped"
                         : "the log of a rank cannot be kept short",
            {{"job", rank.attempt.job},
             {"attempt", absl::StrCat(rank.attempt.attempt)},
             {"rank", absl::StrCat(rank.rank)},
             {"most_bytes", absl::StrCat(most_log_bytes_)},
             {"error", std::string(dropped.status().message())}});
      }
    }
    trimming_ = false;
  });
}

void Daemon::RecordProcess(const RankSpawned& spawned) {
  RanksRecord& record = processes_[spawned.rank.attempt];
  record.ranks[spawned.rank.rank] = spawned.process;
  WriteAgain(spawned.rank.attempt, record);
}

void Daemon::WriteAgain(const AttemptKey& attempt, const RanksRecord& record) {
  if (const absl::Status written = records_.WriteRanks(attempt, record); !written.ok()) {
    // The daemon goes on: ranks without a record die with it anyway (by their death signal).
    Log(LogLevel::kWarning, "what is known of ranks is not recorded",
        {{"error", std::string(written.message())}});
  }
}

}  // namespace tandem::worker
