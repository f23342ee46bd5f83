// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <exception>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "device/stream.h"

namespace tandem::device {

struct StreamError::State {
  absl::Mutex mu;
  std::exception_ptr error ABSL_GUARDED_BY(mu);
  std::atomic<bool> is_set{false};  // read before every piece of work, without the lock
};

StreamError::StreamError() : state_(std::make_shared<State>()) {}

void StreamError::Set(std::exception_ptr error) {
  const absl::MutexLock lock(&state_->mu);
  if (state_->is_set) {
    return;
  }
  state_->error = std::move(error);
  state_->is_set = true;
}

bool StreamError::is_set() const { return state_->is_set; }

void StreamError::RethrowIfSet() const {
  if (!state_->is_set) {
    return;
  }
  std::exception_ptr error;
  {
    const absl::MutexLock lock(&state_->mu);
    error = state_->error;
  }
  std::rethrow_exception(error);
}

}  // namespace tandem::device
