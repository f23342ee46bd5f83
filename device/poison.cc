#include <atomic>
#include <mutex>

#include "device/stream.h"

namespace tandem::device {

struct Poison::State {
  std::mutex mu;
  std::exception_ptr error;         // guarded by mu until is_set
  std::atomic<bool> is_set{false};  // read before every piece of work
};

Poison::Poison() : state_(std::make_shared<State>()) {}

void Poison::Set(std::exception_ptr error) {
  const std::lock_guard lock(state_->mu);
  if (state_->is_set) return;
  state_->error = std::move(error);
  state_->is_set = true;
}

bool Poison::is_set() const { return state_->is_set; }

void Poison::RethrowIfSet() const {
  if (state_->is_set) std::rethrow_exception(state_->error);
}

}  // namespace tandem::device
