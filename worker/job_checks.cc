// SPDX-License-Identifier: Apache-2.0
#include "worker/job_checks.h"

#include <algorithm>
#include <deque>
#include <list>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/log.h"
#include "platform/shown_text.h"
#include "platform/thread.h"
#include "proto/reasons.h"
#include "worker/step.h"

namespace tandem::worker {

class CheckThreads::Shared {
 public:
  Shared(const JobChecks& checks, const platform::Clock& clock, Sink sink)
      : checks_(checks), clock_(clock), sink_(std::move(sink)) {}

  // Returns true if the caller must start another thread, which calls Work.
  bool Put(const AttemptKey& attempt, const v1::JobSpec& resolved) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    waiting_.push_back({attempt, resolved});
    if (num_threads_ < kMost) {
      ++num_threads_;
      return true;
    }
    if (const std::set<std::string> paths = PathsThatHang(); !paths.empty()) {
      platform::Log(platform::LogLevel::kWarning, "the check of a job waits, since others hang",
                    {{"job", attempt.job}, {"paths", absl::StrJoin(paths, ", ")}});
    }
    return false;
  }

  // Called if no thread could be started for Work. A thread that is at work takes the check later. The check
  // fails if there is none, or if all of them hang, because it would then wait as long as they do.
  void NotStarted(const AttemptKey& attempt, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    const absl::Time now = clock_.Now();
    const auto num_hanging =
        std::count_if(looks_.begin(), looks_.end(), [&](const Look& look) { return Hangs(look, now); });
    if (--num_threads_ > num_hanging) {
      platform::Log(platform::LogLevel::kWarning,
                    "the check of a job waits for another, as no thread can start",
                    {{"job", attempt.job}, {"error", std::string(why.message())}});
      return;
    }
    // A thread that has ended meanwhile may have done the check.
    if (std::erase_if(waiting_, [&](const Task& task) { return task.attempt == attempt; }) > 0) {
      sink_(Checked{.attempt = attempt,
                    .problem = absl::StrCat("its files cannot be checked on this worker: ", why.message()),
                    .reason = proto::ReasonCode("WorkerLimits")});
    }
  }

  void Drop(const AttemptKey& attempt) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    std::erase_if(waiting_, [&](const Task& task) { return task.attempt == attempt; });
  }

  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    closed_ = true;
  }

  // Runs the checks that wait, on one thread.
  void Work() ABSL_LOCKS_EXCLUDED(mu_) {
    while (const std::optional<Task> task = Next()) {
      Say(Check(*task));
    }
  }

 private:
  struct Task {
    AttemptKey attempt;
    v1::JobSpec resolved;
  };
  // A path that a thread is inspecting.
  struct Look {
    std::string path;
    absl::Time since;
  };

  static bool Hangs(const Look& look, absl::Time now) {
    return !look.path.empty() && now - look.since >= kPathLimit;
  }

  // Returns nullopt if no check waits; the calling thread then no longer counts.
  std::optional<Task> Next() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (closed_ || waiting_.empty()) {
      --num_threads_;
      return std::nullopt;
    }
    Task task = std::move(waiting_.front());
    waiting_.pop_front();
    return task;
  }

  Checked Check(const Task& task) ABSL_LOCKS_EXCLUDED(mu_) {
    Checked checked{.attempt = task.attempt};
    const auto look = BeginLook();
    checked.violations =
        checks_.check_files(task.resolved, [&](const std::string& field, const std::string& path) {
          return checked.problem.empty() && Enter(task.attempt, field, path, *look, checked);
        });
    EndLook(look);
    if (checked.violations.empty() && checked.problem.empty()) {
      Say(LookingAt{task.attempt});
      checked.program = checks_.name_program(task.resolved);
    }
    if (!checked.problem.empty()) {
      checked.violations.clear();  // they are those of a part of the files
    }
    return checked;
  }

  std::list<Look>::iterator BeginLook() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    return looks_.insert(looks_.end(), Look{});
  }
  void EndLook(std::list<Look>::iterator look) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    looks_.erase(look);
  }

  // Returns false, and the reason in `checked`, if the path hangs already.
  bool Enter(const AttemptKey& attempt, const std::string& field, const std::string& path, Look& look,
             Checked& checked) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      const absl::MutexLock lock(&mu_);
      if (closed_) {
        return false;
      }
      if (PathsThatHang().contains(path)) {
        checked.reason = proto::ReasonCode("PathHangs");
        checked.problem =
            absl::StrCat(field, " ", platform::Shown(path, 200),
                         " is not looked at, since a check of it on this worker has not come back for ",
                         absl::FormatDuration(kPathLimit),
                         " or more: mend or unmount that file system there, or use another path");
        return false;
      }
      look = {.path = path, .since = clock_.Now()};
    }
    Say(LookingAt{attempt, absl::StrCat(field, " ", platform::Shown(path, 200))});
    return true;
  }

  std::set<std::string> PathsThatHang() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::set<std::string> paths;
    const absl::Time now = clock_.Now();
    for (const Look& look : looks_) {
      if (Hangs(look, now)) {
        paths.insert(look.path);
      }
    }
    return paths;
  }

  // Calls the sink under the lock, so that Close waits for the call.
  void Say(Input input) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    if (!closed_) {
      sink_(std::move(input));
    }
  }

  const JobChecks checks_;
  const platform::Clock& clock_;  // valid until Close
  const Sink sink_;               // valid until Close
  absl::Mutex mu_;
  std::deque<Task> waiting_ ABSL_GUARDED_BY(mu_);
  std::list<Look> looks_ ABSL_GUARDED_BY(mu_);  // one for each thread at work
  int num_threads_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

CheckThreads::CheckThreads(const JobChecks& checks, const platform::Clock& clock, Sink sink)
    : shared_(std::make_shared<Shared>(checks, clock, std::move(sink))) {}

CheckThreads::~CheckThreads() { shared_->Close(); }

void CheckThreads::Start(const v1::Assignment& assignment) {
  if (shared_->Put(KeyOf(assignment.id()), assignment.resolved())) {
    absl::StatusOr<std::thread> thread = platform::StartThread([shared = shared_] { shared->Work(); });
    if (thread.ok()) {
      thread->detach();
    } else {
      shared_->NotStarted(KeyOf(assignment.id()), thread.status());
    }
  }
}

void CheckThreads::Drop(const AttemptKey& attempt) { shared_->Drop(attempt); }

}  // namespace tandem::worker
