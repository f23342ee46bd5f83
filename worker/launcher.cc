// SPDX-License-Identifier: Apache-2.0
#include "worker/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "link/channel.h"
#include "link/shared_page.h"
#include "platform/failpoint.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"
#include "platform/thread.h"
#include "proto/reasons.h"
#include "worker/mailbox.h"

namespace tandem::worker {
namespace {

// A trainer that has closed its socket begins to exit at once, unless it is broken. The exit itself takes
// longer: kernel and driver take 4 s to take back 20 GiB that it had pinned and mapped.
constexpr int kExitAfterCloseMs = 2000;

int64_t NowNs(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

PageSample Look(const link::SharedPage& page) {
  PageSample sample;
  sample.phase = static_cast<v1::RankPhase>(page.phase.load(std::memory_order_relaxed));
  sample.step = page.step.load(std::memory_order_relaxed);
  sample.instruction = page.instruction.load(std::memory_order_relaxed);
  const int64_t progress = page.progress_monotonic_ns.load(std::memory_order_relaxed);
  if (progress > 0) {
    sample.since_progress = absl::Nanoseconds(std::max<int64_t>(0, NowNs(CLOCK_MONOTONIC) - progress));
  }
  // Bounded, because the page may contain anything.
  const int communicators = std::clamp(page.num_communicators.load(std::memory_order_relaxed), 0,
                                       link::SharedPage::kMaxCommunicators);
  for (int i = 0; i < communicators; ++i) {
    sample.collectives.push_back(page.collectives[i].load(std::memory_order_relaxed));
  }
  return sample;
}

}  // namespace

class Launcher::Rank {
 public:
  Rank(Launcher& launcher, RankKey key, const v1::Start& start, std::string log_file,
       int64_t orphan_deadline_ns)
      : launcher_(launcher),
        key_(std::move(key)),
        log_file_(std::move(log_file)),
        program_(start.assignment().resolved().resources().device() == v1::DEVICE_CUDA
                     ? CudaTrainer(launcher.trainer_)
                     : launcher.trainer_),
        orphan_deadline_ns_(orphan_deadline_ns) {
    v1::ToTrainer first;
    *first.mutable_start() = start;
    outbox_.Put(std::move(first));
  }

  // Returns an error if no thread can be started; then nothing was started, and the sink is not called for
  // this rank.
  absl::Status Begin() {
    TANDEM_ASSIGN_OR_RETURN(thread_, platform::StartThread([this] { Run(); }));
    return absl::OkStatus();
  }

  ~Rank() {
    Kill();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  void Send(v1::ToTrainer message) { outbox_.Put(std::move(message)); }

  // If the rank is being started, it is killed as soon as it runs.
  void Kill() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    killed_ = true;
    if (!process_) {
      return;
    }
    dying_before_kill_ = dying_before_kill_ || IsDying(process_->id.pid);
    kill(-process_->id.pid, SIGKILL);
  }

  void SetOrphanDeadline(int64_t ns) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    orphan_deadline_ns_ = ns;
    if (page_) {
      (*page_)->orphan_deadline_boottime_ns.store(ns, std::memory_order_relaxed);
    }
  }

  // Returns nullopt if the rank does not run.
  std::optional<PageSample> Sample() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (!process_) {
      return std::nullopt;
    }
    PageSample sample = Look(**page_);
    sample.stopped = IsStopped(process_->id.pid);
    return sample;
  }

 private:
  void Run() {
    const absl::StatusOr<SpawnedProcess> process = Start();
    if (!process.ok()) {
      launcher_.sink_(SpawnFailed{key_, std::string(process.status().message())});
      return;
    }
    absl::StatusOr<std::thread> writer = platform::StartThread([this] { Write(); });
    if (!writer.ok()) {
      Reap();  // this kills it
      launcher_.sink_(SpawnFailed{key_, std::string(writer.status().message())});
      return;
    }
    launcher_.uploads_.RankStarted(key_);
    launcher_.sink_(RankSpawned{key_, process->id});
    TANDEM_FAILPOINT("worker.after_spawn");
    Read(*process);
    outbox_.Close();
    writer->join();
    const Exit exit = Reap();
    launcher_.uploads_.RankGone(key_);
    launcher_.sink_(RankExited{key_, exit, LookAtPage()});
  }

  absl::StatusOr<SpawnedProcess> Start() ABSL_LOCKS_EXCLUDED(mu_) {
    TANDEM_ASSIGN_OR_RETURN(link::MappedPage page, link::MappedPage::Create());
    page->attempt.store(key_.attempt.attempt);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return platform::SystemError(errno, "make a socket pair");
    }
    channel_.emplace(ends[0]);
    group_ = launcher_.groups_ == nullptr ? nullptr : launcher_.groups_->MakeGroup();
    absl::StatusOr<SpawnedProcess> process =
        launcher_.spawner_.Spawn({.program = program_,
                                  .log_file = log_file_,
                                  .control_fd = ends[1],
                                  .page_fd = page.fd(),
                                  .group_fd = group_ == nullptr ? -1 : group_->processes_fd()});
    close(ends[1]);
    TANDEM_RETURN_IF_ERROR(process.status());
    const absl::MutexLock lock(&mu_);
    page_ = std::move(page);
    (*page_)->orphan_deadline_boottime_ns.store(orphan_deadline_ns_, std::memory_order_relaxed);
    process_ = *process;
    if (killed_) {
      kill(-process_->id.pid, SIGKILL);
    }
    return process;
  }

  void Write() {
    while (const std::optional<v1::ToTrainer> message = outbox_.Take(absl::InfiniteDuration())) {
      if (!channel_->Send(*message).ok()) {
        return;  // the rank is gone, and the reader reports it
      }
    }
  }

  // Reads until the process has ended and all its messages are read.
  void Read(const SpawnedProcess& process) {
    bool open = true;
    bool reported = false;
    while (true) {
      pollfd fds[2] = {{.fd = process.pidfd, .events = POLLIN},
                       {.fd = open ? channel_->fd() : -1, .events = POLLIN}};
      const int ready = poll(fds, 2, open || reported ? -1 : kExitAfterCloseMs);
      if (ready < 0) {
        continue;  // interrupted
      }
      if (ready == 0) {
        reported = true;
        if (!IsDying(process.id.pid)) {
          ReportStuck();
        }
      } else if (fds[0].revents != 0) {
        channel_->Shutdown();  // ends the reading even if a child of the trainer holds the socket
        while (open) {
          open = ReceiveOne();
        }
        return;
      } else if (fds[1].revents != 0) {
        open = ReceiveOne();
      }
    }
  }

  // Returns false after the last message.
  bool ReceiveOne() {
    v1::FromTrainer message;
    const absl::StatusOr<bool> got = channel_->Receive(message);
    if (!got.ok()) {
      platform::Log(platform::LogLevel::kWarning, "control socket of a rank broke",
                    {{"job", key_.attempt.job},
                     {"rank", std::to_string(key_.rank)},
                     {"error", std::string(got.status().message())}});
    }
    if (!got.ok() || !*got) {
      return false;
    }
    if (message.has_report()) {
      message.mutable_report()->set_attempt(key_.attempt.attempt);
      launcher_.reports_.Add(key_.attempt, std::move(*message.mutable_report()));
    } else if (message.has_table()) {
      launcher_.reports_.AddTable(key_.attempt, std::move(*message.mutable_table()));
    } else if (message.has_profiled()) {
      launcher_.uploads_.Add(key_, std::move(*message.mutable_profiled()));
    } else {
      Forward(std::move(message));
    }
    return true;
  }

  void ReportStuck() {
    v1::FromTrainer message;
    v1::Cause& cause = *message.mutable_failed();
    cause.set_class_(v1::FAILURE_CLASS_INFRASTRUCTURE);
    cause.set_reason(proto::ReasonCode("LinkLost"));
    cause.set_message(absl::StrCat("rank ", key_.rank, " closed its control socket and did not exit"));
    Forward(std::move(message));
  }

  void Forward(v1::FromTrainer message) {
    FromRank input{.rank = key_};
    if (message.has_failed()) {
      input.sample = LookAtPage();
    }
    input.message = std::move(message);
    launcher_.sink_(std::move(input));
  }

  // Call after Start has succeeded.
  PageSample LookAtPage() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    return Look(**page_);
  }

  Exit Reap() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    // Also kills the trainer's children, which are in its process group. The group's number cannot be reused
    // before the trainer is reaped.
    kill(-process_->id.pid, SIGKILL);
    int status = 0;
    rusage used{};
    while (wait4(process_->id.pid, &status, 0, &used) < 0 && errno == EINTR) {
    }
    close(process_->pidfd);
    process_.reset();
    const std::unique_ptr<RankGroup> group = std::move(group_);
    if (!WIFSIGNALED(status)) {
      return {.exit_code = WEXITSTATUS(status)};
    }
    const bool by_us = killed_ && !dying_before_kill_;
    return {.signal = WTERMSIG(status),
            .before_kill = dying_before_kill_,
            .out_of_memory = WTERMSIG(status) == SIGKILL && !by_us
                                 ? WhyKilled(group.get(), int64_t{used.ru_maxrss} << 10)
                                 : ""};
  }

  // Does what OutOfMemoryWatch does; a control group of its own has its own count of kills.
  std::string WhyKilled(const RankGroup* group, int64_t held_bytes) const {
    if (group == nullptr) {
      return launcher_.memory_.WhyKilled(held_bytes);
    }
    return group->OutOfMemoryKills() > 0 ? launcher_.memory_.TextOf(std::max(held_bytes, group->PeakBytes()))
                                         : "";
  }

  Launcher& launcher_;
  const RankKey key_;
  const std::string log_file_;
  const std::string program_;
  std::unique_ptr<RankGroup> group_;  // from Start to Reap, if ranks have groups
  std::optional<link::Channel> channel_;
  Mailbox<v1::ToTrainer> outbox_;
  absl::Mutex mu_;
  bool killed_ ABSL_GUARDED_BY(mu_) = false;
  bool dying_before_kill_ ABSL_GUARDED_BY(mu_) = false;
  int64_t orphan_deadline_ns_ ABSL_GUARDED_BY(mu_);
  std::optional<link::MappedPage> page_ ABSL_GUARDED_BY(mu_);   // set once the rank was started
  std::optional<SpawnedProcess> process_ ABSL_GUARDED_BY(mu_);  // set while it runs
  std::thread thread_;
};

std::string CudaTrainer(const std::string& trainer) { return trainer + "-cuda"; }

Launcher::Launcher(std::string trainer, std::optional<RunAs> run_as, RankGroups* groups, ReportQueue& reports,
                   Uploads& uploads, Sink sink)
    : trainer_(std::move(trainer)),
      groups_(groups),
      reports_(reports),
      uploads_(uploads),
      sink_(std::move(sink)),
      spawner_(std::move(run_as)) {}

Launcher::~Launcher() {
  std::map<RankKey, std::shared_ptr<Rank>> ranks;
  {
    const absl::MutexLock lock(&mu_);
    ranks.swap(ranks_);
  }
  for (auto& [key, rank] : ranks) {
    rank->Kill();
  }
  ranks.clear();
}

void Launcher::Spawn(const RankKey& key, const v1::Start& start, const std::string& log_file) {
  const absl::MutexLock lock(&mu_);
  auto rank = std::make_shared<Rank>(*this, key, start, log_file, orphan_deadline_ns_);
  if (const absl::Status begun = rank->Begin(); !begun.ok()) {
    sink_(SpawnFailed{key, std::string(begun.message())});
    return;
  }
  ranks_[key] = std::move(rank);
}

void Launcher::Remove(const AttemptKey& attempt) {
  std::vector<std::shared_ptr<Rank>> gone;  // their threads are joined without the lock
  const absl::MutexLock lock(&mu_);
  for (auto it = ranks_.begin(); it != ranks_.end();) {
    if (it->first.attempt == attempt) {
      gone.push_back(std::move(it->second));
      it = ranks_.erase(it);
    } else {
      ++it;
    }
  }
}

bool Launcher::Has(const AttemptKey& attempt) const {
  const absl::MutexLock lock(&mu_);
  const auto first = ranks_.lower_bound({attempt});
  return first != ranks_.end() && first->first.attempt == attempt;
}

std::shared_ptr<Launcher::Rank> Launcher::Find(const RankKey& key) const {
  const absl::MutexLock lock(&mu_);
  const auto it = ranks_.find(key);
  return it == ranks_.end() ? nullptr : it->second;
}

void Launcher::Send(const RankKey& key, v1::ToTrainer message) {
  if (const std::shared_ptr<Rank> rank = Find(key)) {
    rank->Send(std::move(message));
  }
}

void Launcher::Kill(const RankKey& key) {
  if (const std::shared_ptr<Rank> rank = Find(key)) {
    rank->Kill();
  }
}

void Launcher::SetOrphanDeadline(absl::Duration after) {
  const absl::MutexLock lock(&mu_);
  orphan_deadline_ns_ =
      after == absl::InfiniteDuration() ? 0 : NowNs(CLOCK_BOOTTIME) + absl::ToInt64Nanoseconds(after);
  for (const auto& [key, rank] : ranks_) {
    rank->SetOrphanDeadline(orphan_deadline_ns_);
  }
}

std::vector<std::pair<RankKey, PageSample>> Launcher::Sample() const {
  memory_.Look();
  std::vector<std::pair<RankKey, PageSample>> samples;
  const absl::MutexLock lock(&mu_);
  for (const auto& [key, rank] : ranks_) {
    if (std::optional<PageSample> sample = rank->Sample()) {
      samples.emplace_back(key, std::move(*sample));
    }
  }
  return samples;
}

}  // namespace tandem::worker
