#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace tandem::device {

// A point in a stream's order. Cheap to copy; default-constructed: already reached.
// On the CPU a shared future; on CUDA a cudaEvent.
class Event {
 public:
  // Each kind of stream has its own; a stream waits for events of its kind only.
  class State {
   public:
    virtual ~State() = default;
    virtual bool IsReached() = 0;  // any thread
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Shared by the streams of one rank: the first error poisons all of them. Thread-safe.
class Poison {
 public:
  struct State;

  Poison();

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
// An exception in the work poisons: everything queued, here and on the other streams of that Poison, is
// skipped, and Synchronize throws it.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual void Enqueue(std::function<void()> work) = 0;

  // The event is reached when everything enqueued so far has run (or was skipped).
  virtual Event Record() = 0;

  // Work enqueued from now on starts after `event`.
  virtual void Wait(const Event& event) = 0;

  // Blocks the caller until everything enqueued has run, or the poison is set, which may leave work under
  // way. Throws the poison's error.
  virtual void Synchronize() = 0;
};

// A thread with an in-order queue. `name` shows in `ps -T` (15 characters).
std::unique_ptr<Stream> MakeCpuStream(const std::string& name, Poison poison);

// Where one rank gets its streams from. Outlives them. Used by the rank's issuing thread.
class StreamFactory {
 public:
  virtual ~StreamFactory() = default;

  virtual std::unique_ptr<Stream> MakeStream(const std::string& name, Poison poison) = 0;
};

// A thread each.
class CpuStreams final : public StreamFactory {
 public:
  std::unique_ptr<Stream> MakeStream(const std::string& name, Poison poison) override;
};

}  // namespace tandem::device
