// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "device/stream.h"

namespace tandem::device {

// One piece of a device's memory. It is freed with the object. No work may use it any more then.
class Region {
 public:
  virtual ~Region() = default;

  virtual char* begin() const = 0;  // the host may dereference it only in the host's memory
  virtual int64_t bytes() const = 0;
};

// Memory of a device in bytes, counted over all processes that use it.
struct MemoryUse {
  int64_t used = 0;
  int64_t total = 0;
};

// The time at which a stream reached a point of its order.
class TimeMark {
 public:
  virtual ~TimeMark() = default;

  // Nanoseconds since `origin`, a mark of the same device, possibly on another stream. Both streams must have
  // passed their marks.
  virtual int64_t Since(const TimeMark& origin) const = 0;
};

// Work that was captured once and can be launched again. It may be destroyed while a launch is in progress.
// Used by the issuing thread.
class Graph {
 public:
  virtual ~Graph() = default;

  // Does the work again, on the same addresses, in the order of the current stream.
  virtual void Launch() = 0;
};

enum class StreamPriority : uint8_t { kNormal, kHigh };

// The memory and the streams that a rank runs on. "The current stream" is the one whose work is running
// (Stream::Enqueue); outside of streams it is, on CUDA, the default stream. A device must outlive everything
// that it makes. Used by one issuing thread, and by the work of its streams.
class Device {
 public:
  virtual ~Device() = default;

  // The driver's name for the device, such as "NVIDIA H200"; "cpu" for the CPU.
  virtual std::string name() const = 0;

  // How much memory is in use now. For the CPU this is the machine's memory; what the kernel could reclaim
  // counts as free.
  virtual MemoryUse memory_use() const = 0;

  // True if work is done when its call returns, as on the CPU. If false, calls only issue work, and an event
  // that is recorded after it is reached when the work is done.
  virtual bool finishes_in_calls() const = 0;

  // Makes a stream; `name` shows in `ps -T` (CPU: 15 characters). A GPU with work of several streams prefers
  // that of high priority. On the CPU, where streams are threads, priority makes no difference.
  virtual std::unique_ptr<Stream> MakeStream(const std::string& name, StreamPriority priority,
                                             StreamError error) = 0;

  // Allocates device memory with unspecified contents. Throws OutOfMemory.
  virtual std::unique_ptr<Region> Reserve(int64_t bytes) = 0;

  // Allocates host memory that the device copies to and from, pinned if the device benefits. Its contents are
  // unspecified. Throws OutOfMemory.
  virtual std::unique_ptr<Region> ReserveHost(int64_t bytes) = 0;

  // Copy in the order of the current stream. On the CPU the copy is done at once. On CUDA it is asynchronous:
  // the host must not touch its side until the stream has passed the copy. The host's side must lie in a
  // region of ReserveHost.
  virtual void CopyToDevice(void* device, const void* host, int64_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, int64_t bytes) = 0;

  // Copies between two places on the device that do not overlap, in the order of the current stream.
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;

  // Captures what `work` issues on the current stream, without running it. `work` must have run once before,
  // so that libraries have set up what they need. It must not read host memory that changes, wait, or
  // allocate. On the CPU a launch calls `work`, which therefore lives as long as the graph. Throws
  // DeviceError if a GPU cannot capture the work, and std::logic_error if the work takes memory of LibTorch's
  // allocator.
  virtual std::unique_ptr<Graph> Capture(std::function<void()> work) = 0;

  // Sets every byte of [begin, begin + bytes), in the order of the current stream.
  virtual void Fill(void* begin, uint8_t byte, int64_t bytes) = 0;

  // Marks the current point of the current stream, asynchronously to the host.
  virtual std::unique_ptr<TimeMark> MarkTime() = 0;

  // Blocks until the device has done everything that was issued on any stream. Only for the time before the
  // first run, never in a step.
  virtual void Synchronize() = 0;
};

// The device has failed. Every later call to it reports the error, whichever work caused it.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// There is less free memory than was requested. what() says how much there is.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Makes a device of the host's processor and memory. Its streams are threads, or come from `streams`, which
// must outlive it.
std::unique_ptr<Device> MakeCpuDevice();
std::unique_ptr<Device> MakeCpuDevice(StreamFactory& streams);

}  // namespace tandem::device
