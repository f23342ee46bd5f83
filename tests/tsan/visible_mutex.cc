// SPDX-License-Identifier: Apache-2.0
// absl::Mutex and absl::CondVar for builds with ThreadSanitizer, made of the standard library's. Debian's
// Abseil is not compiled for it, so its locks order nothing that ThreadSanitizer could see, and it would
// report every guarded field as a race. What an executable defines takes the place of a shared library's:
// Abseil's other classes and gRPC use these too.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <shared_mutex>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem {
namespace {

// What an absl::Mutex points to in place of its own bits.
struct Lock {
  std::shared_mutex mu;
  std::condition_variable_any unlocked;
  bool exclusive = false;     // how its holder has it
  std::atomic<int> waits{0};  // for conditions; changes where `mu` is held

  void lock() {
    mu.lock();
    exclusive = true;
  }
  void unlock() {
    exclusive = false;
    mu.unlock();  // after which another thread may delete this
  }

  // Makes threads that wait for conditions look again. Called before the lock is released.
  void Announce() {
    if (waits > 0) {
      unlocked.notify_all();
    }
  }
};

// As the holder has it.
struct Held {
  Lock& lock_;
  const bool exclusive = lock_.exclusive;
  void lock() { exclusive ? lock_.lock() : lock_.mu.lock_shared(); }
  void unlock() { exclusive ? lock_.unlock() : lock_.mu.unlock_shared(); }
};

// Behind an object of Abseil, whose only member is a word that is 0 at first.
template <typename State>
std::atomic<State*>& WordOf(const void* object) {
  return *static_cast<std::atomic<State*>*>(const_cast<void*>(object));
}

template <typename State>
State& StateOf(const void* object) {
  std::atomic<State*>& word = WordOf<State>(object);
  State* known = word.load(std::memory_order_acquire);
  if (known == nullptr) {
    State* const made = new State;
    if (word.compare_exchange_strong(known, made)) {
      return *made;
    }
    delete made;
  }
  return *known;
}

Lock& LockOf(const absl::Mutex* mutex) { return StateOf<Lock>(mutex); }
std::condition_variable_any& ConditionOf(const absl::CondVar* condition) {
  return StateOf<std::condition_variable_any>(condition);
}
static_assert(sizeof(absl::Mutex) == sizeof(Lock*) && sizeof(absl::CondVar) == sizeof(Lock*));

// False: `limit` has passed.
template <typename Lockable>
bool WaitOnce(std::condition_variable_any& condition, Lockable& held,
              std::chrono::steady_clock::time_point begin, absl::Duration limit) {
  const absl::Duration left = limit - absl::FromChrono(std::chrono::steady_clock::now() - begin);
  if (left <= absl::ZeroDuration()) {
    return false;
  }
  condition.wait_for(held, absl::ToChronoNanoseconds(std::min(left, absl::Hours(1))));
  return true;
}

bool Await(const absl::Mutex* mutex, const absl::Condition& condition, absl::Duration limit) {
  Lock& lock = LockOf(mutex);
  Held held{lock};
  lock.Announce();
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  ++lock.waits;
  bool met = condition.Eval();
  while (!met && WaitOnce(lock.unlocked, held, begin, limit)) {
    met = condition.Eval();
  }
  --lock.waits;
  return met;
}

}  // namespace
}  // namespace tandem

namespace absl {
ABSL_NAMESPACE_BEGIN

Mutex::~Mutex() { delete tandem::WordOf<tandem::Lock>(this).load(); }

void Mutex::Lock() { tandem::LockOf(this).lock(); }
void Mutex::Unlock() {
  tandem::Lock& lock = tandem::LockOf(this);
  lock.Announce();
  lock.unlock();
}
bool Mutex::TryLock() {
  tandem::Lock& lock = tandem::LockOf(this);
  const bool locked = lock.mu.try_lock();
  if (locked) {
    lock.exclusive = true;
  }
  return locked;
}
void Mutex::ReaderLock() { tandem::LockOf(this).mu.lock_shared(); }
void Mutex::ReaderUnlock() { tandem::LockOf(this).mu.unlock_shared(); }
bool Mutex::ReaderTryLock() { return tandem::LockOf(this).mu.try_lock_shared(); }

void Mutex::AssertHeld() const {}
void Mutex::AssertReaderHeld() const {}
void Mutex::AssertNotHeld() const {}

void Mutex::Await(const Condition& condition) { tandem::Await(this, condition, InfiniteDuration()); }
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return tandem::Await(this, condition, timeout);
}
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  return tandem::Await(this, condition, deadline - Now());
}
void Mutex::LockWhen(const Condition& condition) {
  Lock();
  Await(condition);
}
bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  Lock();
  return AwaitWithTimeout(condition, timeout);
}
bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  Lock();
  return AwaitWithDeadline(condition, deadline);
}
void Mutex::ReaderLockWhen(const Condition& condition) {
  ReaderLock();
  Await(condition);
}
bool Mutex::ReaderLockWhenWithTimeout(const Condition& condition, Duration timeout) {
  ReaderLock();
  return AwaitWithTimeout(condition, timeout);
}
bool Mutex::ReaderLockWhenWithDeadline(const Condition& condition, Time deadline) {
  ReaderLock();
  return AwaitWithDeadline(condition, deadline);
}

CondVar::~CondVar() { delete tandem::WordOf<std::condition_variable_any>(this).load(); }

void CondVar::Signal() { tandem::ConditionOf(this).notify_one(); }
void CondVar::SignalAll() { tandem::ConditionOf(this).notify_all(); }
void CondVar::Wait(Mutex* mutex) {
  tandem::Lock& lock = tandem::LockOf(mutex);
  tandem::Held held{lock};
  lock.Announce();
  tandem::ConditionOf(this).wait(held);
}
bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  tandem::Lock& lock = tandem::LockOf(mutex);
  tandem::Held held{lock};
  lock.Announce();
  const std::chrono::nanoseconds limit = ToChronoNanoseconds(std::clamp(timeout, ZeroDuration(), Hours(1)));
  return tandem::ConditionOf(this).wait_for(held, limit) == std::cv_status::timeout;
}
bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  return WaitWithTimeout(mutex, deadline - Now());
}

ABSL_NAMESPACE_END
}  // namespace absl
