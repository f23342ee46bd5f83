// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace tandem::device {

// A point in a stream's order. Cheap to copy; default-constructed: already reached. Streams keep the events
// that are not referred to any more for their next Record, so recording allocates nothing once a program has
// run.
class Event {
 public:
  // Each kind of stream has its own; a stream waits for events of its kind only.
  class State {
   public:
    virtual ~State() = default;
    virtual bool IsReached() = 0;  // any thread

   private:
    friend class Event;
    // The last reference is gone: to the pool, or away. Any thread.
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

// The first error of a rank's streams, which ends all of them. Thread-safe.
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

// Work that runs in order, asynchronously to the host.
// One issuing thread. On the CPU the work runs on the stream's own thread, with gradients disabled, one
// intra-op thread, blocking while idle. On CUDA it runs in Enqueue, on the issuing thread, with this as the
// current stream, and launches kernels: work never waits for the device. There Enqueue waits while too much
// of what was issued before is still to be done.
// An exception in the work is kept: everything queued, here and on the other streams of that StreamError, is
// skipped, and Synchronize throws it.
class Stream {
 public:
  virtual ~Stream() = default;

  // Allocates nothing in the steady state for work that is two pointers (what std::function keeps in itself):
  // what is bound once goes by reference.
  virtual void Enqueue(std::function<void()> work) = 0;

  // The event is reached when everything enqueued so far has run (or was skipped).
  virtual Event Record() = 0;

  // Work enqueued from now on starts after `event`.
  virtual void Wait(const Event& event) = 0;

  // Blocks the caller until everything enqueued has run, or an error is set, which may leave work under
  // way. Throws that error.
  virtual void Synchronize() = 0;

  // The same until `event` of this kind of stream is reached; what was enqueued behind it goes on.
  virtual void Synchronize(const Event& event) = 0;
};

// A thread with an in-order queue. `name` shows in `ps -T` (15 characters).
std::unique_ptr<Stream> MakeCpuStream(const std::string& name, StreamError error);

// Where one rank gets its streams from. Outlives them. Used by the rank's issuing thread.
class StreamFactory {
 public:
  virtual ~StreamFactory() = default;

  virtual std::unique_ptr<Stream> MakeStream(const std::string& name, StreamError error) = 0;
};

// A thread each.
class CpuStreams final : public StreamFactory {
 public:
  std::unique_ptr<Stream> MakeStream(const std::string& name, StreamError error) override;
};

}  // namespace tandem::device
