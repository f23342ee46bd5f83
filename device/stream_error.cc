// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <mutex>

#include "device/stream.h"

namespace tandem::device {

struct StreamError::State {
  std::mutex mu;
  std::exception_ptr error;         // guarded by mu until is_set
  std::atomic<bool> is_set{false};  // read before every piece of work
};

StreamError::StreamError() : state_(std::make_shared<State>()) {}

void StreamError::Set(std::exception_ptr error) {
  const std::lock_guard lock(state_->mu);
  if (state_->is_set) {
    return;
  }
  state_->error = std::move(error);
  state_->is_set = true;
}

bool StreamError::is_set() const { return state_->is_set; }

void StreamError::RethrowIfSet() const {
  if (state_->is_set) {
    std::rethrow_exception(state_->error);
  }
}

}  // namespace tandem::device
