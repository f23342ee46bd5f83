// SPDX-License-Identifier: Apache-2.0
#include "trainer/task_thread.h"

#include <pthread.h>

#include <stdexcept>
#include <utility>

namespace tandem::trainer {

TaskThread::TaskThread(const char* name, std::function<void(const std::exception_ptr& error)> failed)
    : failed_(std::move(failed)), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), name);
}

TaskThread::~TaskThread() {
  {
    const absl::MutexLock lock(&mu_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void TaskThread::Begin(int64_t step, Task task) {
  const absl::MutexLock lock(&mu_);
  if (step_.has_value()) {
    throw std::logic_error("a task begins while another is in progress");
  }
  step_ = step;
  task_ = std::move(task);
  changed_.NotifyAll();
}

TaskThread::Ended TaskThread::Await() {
  const absl::MutexLock lock(&mu_);
  while (step_.has_value()) {
    changed_.Wait(mu_);
  }
  if (thrown_ != nullptr) {
    std::rethrow_exception(thrown_);
  }
  const int64_t step = std::exchange(newest_.step, 0);
  return {.step = step, .error = step == 0 ? "" : newest_.error};
}

void TaskThread::WhenDone(OnDone then) {
  std::string error;
  {
    const absl::MutexLock lock(&mu_);
    if (step_.has_value()) {
      waiting_.push_back(std::move(then));
      return;
    }
    if (thrown_ != nullptr) {
      return;
    }
    error = newest_.error;
  }
  then(error);
}

bool TaskThread::TakeWaiting(const Ended& ended, std::vector<OnDone>& waiting) {
  const absl::MutexLock lock(&mu_);
  waiting = std::exchange(waiting_, {});
  if (waiting.empty()) {
    newest_ = ended;
    step_.reset();
    changed_.NotifyAll();
  }
  return !waiting.empty();
}

void TaskThread::Run() {
  while (true) {
    Task task;
    int64_t step = 0;
    {
      const absl::MutexLock lock(&mu_);
      while (!task_ && !ending_) {
        changed_.Wait(mu_);
      }
      if (!task_) {
        return;
      }
      task = std::exchange(task_, nullptr);
      step = *step_;
    }
    std::string error;
    std::exception_ptr thrown;
    try {
      error = task();
    } catch (...) {
      thrown = std::current_exception();
    }
    // Before the task counts as ended: the process may exit after the last one.
    for (std::vector<OnDone> waiting; thrown == nullptr && TakeWaiting({step, error}, waiting);) {
      for (const OnDone& then : waiting) {
        then(error);
      }
    }
    if (thrown != nullptr) {
      {
        const absl::MutexLock lock(&mu_);
        thrown_ = thrown;
        step_.reset();
        changed_.NotifyAll();
      }
      failed_(thrown);
      return;
    }
  }
}

}  // namespace tandem::trainer
