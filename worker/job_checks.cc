// SPDX-License-Identifier: Apache-2.0
#include "worker/job_checks.h"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <list>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "jobspec/text.h"
#include "platform/log.h"
#include "worker/step.h"

namespace tandem::worker {

class CheckThreads::Shared {
 public:
  Shared(const JobChecks& checks, const platform::Clock& clock, Sink sink)
      : checks_(checks), clock_(clock), sink_(std::move(sink)) {}

  // True: another thread is needed, which is to call Work.
  bool Put(const AttemptKey& attempt, const v1::JobSpec& resolved) {
    const std::lock_guard lock(mu_);
    waiting_.push_back({attempt, resolved});
    changed_.notify_one();
    if (waiting_.size() <= static_cast<size_t>(idle_)) {
      return false;
    }
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

  void Drop(const AttemptKey& attempt) {
    const std::lock_guard lock(mu_);
    std::erase_if(waiting_, [&](const Task& task) { return task.attempt == attempt; });
  }

  void Close() {
    const std::lock_guard lock(mu_);
    closed_ = true;
    changed_.notify_all();
  }

  // One thread, until Close.
  void Work() {
    while (true) {
      Task task;
      {
        std::unique_lock lock(mu_);
        ++idle_;
        changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
        --idle_;
        if (closed_) {
          return;
        }
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      Say(Check(task));
    }
  }

 private:
  struct Task {
    AttemptKey attempt;
    v1::JobSpec resolved;
  };
  // A path that a thread looks at.
  struct Look {
    std::string path;
    absl::Time since;
  };

  Checked Check(const Task& task) {
    Checked checked{.attempt = task.attempt};
    const auto look = BeginLook();
    checked.violations = checks_.check_files(task.resolved, [&](const char* field, const std::string& path) {
      return checked.problem.empty() && Enter(task.attempt, field, path, *look, checked.problem);
    });
    EndLook(look);
    if (checked.violations.empty() && checked.problem.empty()) {
      Say(LookingAt{task.attempt});
      checked.program = checks_.name_program(task.resolved);
    }
    if (!checked.problem.empty()) {
      checked.violations.clear();  // of a part of the files
    }
    return checked;
  }

  std::list<Look>::iterator BeginLook() {
    const std::lock_guard lock(mu_);
    return looks_.insert(looks_.end(), Look{});
  }
  void EndLook(std::list<Look>::iterator look) {
    const std::lock_guard lock(mu_);
    looks_.erase(look);
  }

  // False, and why: the path hangs already.
  bool Enter(const AttemptKey& attempt, const char* field, const std::string& path, Look& look,
             std::string& problem) {
    {
      const std::lock_guard lock(mu_);
      if (closed_) {
        return false;
      }
      if (PathsThatHang().contains(path)) {
        problem = absl::StrCat(field, " ", jobspec::Shown(path, 200),
                               " is not looked at, since a check of it on this worker has not come back for ",
                               absl::FormatDuration(kPathLimit),
                               " or more: mend or unmount that file system there, or use another path");
        return false;
      }
      look = {.path = path, .since = clock_.Now()};
    }
    Say(LookingAt{attempt, absl::StrCat(field, " ", jobspec::Shown(path, 200))});
    return true;
  }

  // With mu_.
  std::set<std::string> PathsThatHang() const {
    std::set<std::string> paths;
    const absl::Time now = clock_.Now();
    for (const Look& look : looks_) {
      if (!look.path.empty() && now - look.since >= kPathLimit) {
        paths.insert(look.path);
      }
    }
    return paths;
  }

  // Under the lock, so that Close waits for it.
  void Say(Input input) {
    const std::lock_guard lock(mu_);
    if (!closed_) {
      sink_(std::move(input));
    }
  }

  const JobChecks checks_;
  const platform::Clock& clock_;  // until Close
  const Sink sink_;               // until Close
  std::mutex mu_;
  std::condition_variable changed_;
  // All below is guarded by mu_.
  std::deque<Task> waiting_;
  std::list<Look> looks_;  // of the threads at work
  int num_threads_ = 0;
  int idle_ = 0;
  bool closed_ = false;
};

CheckThreads::CheckThreads(const JobChecks& checks, const platform::Clock& clock, Sink sink)
    : shared_(std::make_shared<Shared>(checks, clock, std::move(sink))) {}

CheckThreads::~CheckThreads() { shared_->Close(); }

void CheckThreads::Start(const v1::Assignment& assignment) {
  if (shared_->Put(KeyOf(assignment.id()), assignment.resolved())) {
    std::thread([shared = shared_] { shared->Work(); }).detach();
  }
}

void CheckThreads::Drop(const AttemptKey& attempt) { shared_->Drop(attempt); }

}  // namespace tandem::worker
