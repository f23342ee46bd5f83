// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "device/stream.h"

namespace tandem::device {

// One piece of a device's memory; freed with the object, which no work may use any more.
class Region {
 public:
  virtual ~Region() = default;

  virtual char* begin() const = 0;  // the host dereferences it on the CPU only
  virtual int64_t bytes() const = 0;
};

// Memory of a device in bytes, over all processes that use it.
struct MemoryUse {
  int64_t used = 0;
  int64_t total = 0;
};

// When a stream got to a point of its order.
class TimeMark {
 public:
  virtual ~TimeMark() = default;

  // Nanoseconds since `origin`, a mark of the same device, which may be on another stream. Both streams have
  // passed their marks.
  virtual int64_t Since(const TimeMark& origin) const = 0;
};

// Work that was captured once. Outlives its last launch; a launch may still be in progress when it is
// destroyed. Used by the thread that issues.
class Graph {
 public:
  virtual ~Graph() = default;

  // Does the work again, on the same addresses, in the order of the current stream.
  virtual void Launch() = 0;
};

enum class StreamPriority : uint8_t { kNormal, kHigh };

// What a rank runs on: its memory and its streams. "The current stream" is the one whose work is running
// (Stream::Enqueue); outside of streams, on CUDA, the default stream. Outlives what it made.
// Used by one issuing thread, and by the work of its streams.
class Device {
 public:
  virtual ~Device() = default;

  // As its driver says it: "NVIDIA H200"; "cpu".
  virtual std::string name() const = 0;

  // Now. Of the CPU the machine's memory, of which what the kernel could take back counts as not used.
  virtual MemoryUse memory_use() const = 0;

  // Whether work is done when its call returns, as on the CPU. Otherwise it has been issued then, and an
  // event behind it says when it is done.
  virtual bool finishes_in_calls() const = 0;

  // `name` shows in `ps -T` (CPU: 15 characters). Where a GPU has work of several streams, that of a high
  // priority comes first; on the CPU, where streams are threads, it makes no difference.
  virtual std::unique_ptr<Stream> MakeStream(const std::string& name, StreamPriority priority,
                                             StreamError error) = 0;

  // Throws OutOfMemory.
  virtual std::unique_ptr<Region> Reserve(int64_t bytes) = 0;

  // Host memory that the device copies to and from, pinned where that matters; what is there is unspecified.
  // Throws OutOfMemory.
  virtual std::unique_ptr<Region> ReserveHost(int64_t bytes) = 0;

  // In the order of the current stream: at once on the CPU; on CUDA asynchronously to the host, which leaves
  // its side alone until the stream has passed the copy. The host's side lies in a region of ReserveHost.
  virtual void CopyToDevice(void* device, const void* host, int64_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, int64_t bytes) = 0;

  // Between two places on the device that do not overlap, in the order of the current stream.
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;

  // What `work` issues on the current stream, which does nothing meanwhile. `work` has run before, so that
  // libraries have set up what they need; it reads nothing on the host that changes, waits for nothing, and
  // allocates nothing. On the CPU, where work is done when it is issued, a launch calls `work`, which lives
  // as long as the graph. Throws DeviceError where a GPU cannot capture the work, and std::logic_error where
  // the work takes memory of LibTorch's allocator.
  virtual std::unique_ptr<Graph> Capture(std::function<void()> work) = 0;

  // Every byte of [begin, begin + bytes), in the order of the current stream.
  virtual void Fill(void* begin, uint8_t byte, int64_t bytes) = 0;

  // On the current stream, asynchronously to the host.
  virtual std::unique_ptr<TimeMark> MarkTime() = 0;

  // Blocks until the device has done everything that was issued, on any stream. For the time before the first
  // run; never in a step.
  virtual void Synchronize() = 0;
};

// The device has failed. The next call to it returns the error, whatever made it fail.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Less memory than asked for. what() says how much there is.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The host's processor and memory; streams are threads, or what `streams` makes, which outlives it.
std::unique_ptr<Device> MakeCpuDevice();
std::unique_ptr<Device> MakeCpuDevice(StreamFactory& streams);

}  // namespace tandem::device
