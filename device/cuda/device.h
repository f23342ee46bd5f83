// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/device.h"

namespace tandem::device {

// The most pieces of work that a stream may have in flight. Before it issues another, the issuing thread
// waits. Without this limit the driver would block: it queues about a thousand kernels for a stream, and then
// holds the launching thread and every other thread that calls the driver, among them the thread that must
// notice a lost peer. The limit of two runs in flight does not help, because one run of a deep model is
// several thousand kernels.
inline constexpr size_t kStreamAhead = 8;

// Memory that was allocated for GPU `index`, and is freed there.
class CudaRegion : public Region {
 public:
  // `begin` is null if `bytes` is 0.
  CudaRegion(int index, void* begin, int64_t bytes, void (*free)(void*))
      : index_(index), begin_(begin), bytes_(bytes), free_(free) {}
  ~CudaRegion() override;
  CudaRegion(const CudaRegion&) = delete;
  CudaRegion& operator=(const CudaRegion&) = delete;

  char* begin() const override { return static_cast<char*>(begin_); }
  int64_t bytes() const override { return bytes_; }

 private:
  const int index_;
  void* const begin_;
  const int64_t bytes_;
  void (*const free_)(void*);
};

// Throws OutOfMemory with the free memory of GPU `index`, the current one, after an allocation of `bytes`
// failed. `reason` may be empty.
[[noreturn]] void ThrowOutOfMemory(int index, int64_t bytes, const std::string& reason = "");

// Makes GPU `index` of those that this process sees. Each region is one cudaMalloc; streams are non-blocking
// CUDA streams, events are cudaEvents, host memory is pinned. Throws std::runtime_error with the index if
// there is no such GPU or no driver.
std::unique_ptr<Device> MakeCudaDevice(int index);

// The number of GPUs that this process sees; 0 if there is no driver.
int CountCudaDevices();

// Implements Device::Capture for GPU `index`. During a capture, other threads may use the GPU and allocate
// its memory, and other streams may have work.
std::unique_ptr<Graph> CaptureCudaGraph(int index, const std::function<void()>& work);

// Makes a stream of GPU `index`. Work runs in Enqueue, with this stream as the current one.
std::unique_ptr<Stream> MakeCudaStream(int index, StreamPriority priority, StreamError error);

}  // namespace tandem::device
