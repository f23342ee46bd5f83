// SPDX-License-Identifier: Apache-2.0
#include "trainer/save_thread.h"

#include <pthread.h>

#include <stdexcept>
#include <utility>

namespace tandem::trainer {

SaveThread::SaveThread(std::function<void(const std::exception_ptr& error)> failed)
    : failed_(std::move(failed)), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "save");
}

SaveThread::~SaveThread() {
  {
    const absl::MutexLock lock(&mu_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void SaveThread::Begin(int64_t step, Save save) {
  const absl::MutexLock lock(&mu_);
  if (step_ != 0) {
    throw std::logic_error("a save begins while another is in progress");
  }
  step_ = step;
  save_ = std::move(save);
  changed_.NotifyAll();
}

SaveThread::Ended SaveThread::Await() {
  const absl::MutexLock lock(&mu_);
  while (step_ != 0) {
    changed_.Wait(mu_);
  }
  if (thrown_ != nullptr) {
    std::rethrow_exception(thrown_);
  }
  const int64_t step = std::exchange(newest_.step, 0);
  return {.step = step, .error = step == 0 ? "" : newest_.error};
}

void SaveThread::WhenSaved(OnSaved then) {
  std::string error;
  {
    const absl::MutexLock lock(&mu_);
    if (step_ != 0) {
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

bool SaveThread::TakeWaiting(const Ended& ended, std::vector<OnSaved>& waiting) {
  const absl::MutexLock lock(&mu_);
  waiting = std::exchange(waiting_, {});
  if (waiting.empty()) {
    newest_ = ended;
    step_ = 0;
    changed_.NotifyAll();
  }
  return !waiting.empty();
}

void SaveThread::Run() {
  while (true) {
    Save save;
    int64_t step = 0;
    {
      const absl::MutexLock lock(&mu_);
      while (!save_ && !ending_) {
        changed_.Wait(mu_);
      }
      if (!save_) {
        return;
      }
      save = std::exchange(save_, nullptr);
      step = step_;
    }
    std::string error;
    std::exception_ptr thrown;
    try {
      error = save();
    } catch (...) {
      thrown = std::current_exception();
    }
    // Before the save counts as ended: the process may leave behind the last.
    for (std::vector<OnSaved> waiting; thrown == nullptr && TakeWaiting({step, error}, waiting);) {
      for (const OnSaved& then : waiting) {
        then(error);
      }
    }
    if (thrown != nullptr) {
      {
        const absl::MutexLock lock(&mu_);
        thrown_ = thrown;
        step_ = 0;
        changed_.NotifyAll();
      }
      failed_(thrown);
      return;
    }
  }
}

}  // namespace tandem::trainer
