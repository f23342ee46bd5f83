// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace tandem::device {

// A point in a stream's order, cheap to copy. A default-constructed event has already been reached. Each
// stream recycles its events that have no references, so that Record allocates nothing once a program has
// run.
class Event {
 public:
  // Base class of what an Event refers to; each kind of stream (CPU, CUDA) derives its own. A stream waits
  // only for events of its own kind.
  class State {
   public:
    virtual ~State() = default;
    virtual bool IsReached() = 0;  // any thread

   private:
    friend class Event;
    // Returns the event to its pool or deletes it. Called on any thread, when the last reference is gone.
    virtual void Recycle() = 0;

    std::atomic<int> references_{0};
  };

  Event() = default;
  explicit Event(State* state) : state_(state) { Refer(); }
  Event(const Event& other) : state_(other.state_) { Refer(); }
  Event(Event&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Event& operator=(Event other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Event() {
    if (state_ != nullptr && state_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      state_->Recycle();
    }
  }

  State* state() const { return state_; }
  bool IsReached() const { return state_ == nullptr || state_->IsReached(); }

 private:
  void Refer() {
    if (state_ != nullptr) {
      state_->references_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  State* state_ = nullptr;
};

// The first error of a rank's streams. Once it is set, all of these streams stop. Thread-safe.
class StreamError {
 public:
  struct State;

  StreamError();

  // Keeps the first error; later ones are dropped.
  void Set(std::exception_ptr error);
  bool is_set() const;
  void RethrowIfSet() const;

 private:
  std::shared_ptr<State> state_;
};

// A queue of work that runs in order, asynchronously to the host. Used by one issuing thread.
//
// On the CPU the work runs on the stream's own thread, with gradients disabled and one intra-op thread; the
// thread blocks while it is idle. On CUDA the work runs inside Enqueue, on the issuing thread, with this
// stream as the current one. There it only launches kernels and never waits for the device, but Enqueue
// itself waits while too much earlier work is in flight.
//
// If work throws, the exception is kept in the StreamError, everything queued on all streams that share it is
// skipped, and Synchronize throws the exception.
class Stream {
 public:
  virtual ~Stream() = default;

  // In the steady state this allocates nothing if `work` has the size of two pointers, which std::function
  // stores in place. So pass a lambda that captures at most two references or pointers, to objects that
  // outlive the work.
  virtual void Enqueue(std::function<void()> work) = 0;

  // Returns an event that is reached when everything enqueued so far has run or was skipped.
  virtual Event Record() = 0;

  // Work enqueued from now on starts after `event` is reached.
  virtual void Wait(const Event& event) = 0;

  // Blocks the caller until everything enqueued has run, or until an error is set; then work may still be
  // running, and the error is thrown.
  virtual void Synchronize() = 0;

  // Blocks the caller until `event`, of this kind of stream, is reached, or until an error is set, and throws
  // the error if one is set. Work behind the event continues.
  virtual void Synchronize(const Event& event) = 0;
};

// Makes a thread with an in-order queue. `name` shows in `ps -T` (15 characters).
std::unique_ptr<Stream> MakeCpuStream(const std::string& name, StreamError error);

// Makes the streams of one rank, and must outlive them. Used by the rank's issuing thread.
class StreamFactory {
 public:
  virtual ~StreamFactory() = default;

  virtual std::unique_ptr<Stream> MakeStream(const std::string& name, StreamError error) = 0;
};

}  // namespace tandem::device
