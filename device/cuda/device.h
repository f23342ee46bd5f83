// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device/device.h"

namespace tandem::device {

// Pieces of work that a stream may have to do still when the next one is issued; then the issuing thread
// waits. The driver takes about a thousand kernels a stream and then blocks the launching thread, and with it
// every other that asks it something: the thread that is to notice that a peer is gone would hang as well.
// That at most two runs are in flight bounds nothing here: one run of a deep model is several thousand
// kernels.
inline constexpr size_t kStreamAhead = 8;

// GPU `index` of those that this process sees. Memory is one cudaMalloc a region; streams are non-blocking
// CUDA streams, events cudaEvents; memory of the host is pinned. Throws std::runtime_error, naming the
// index, where there is no such GPU or no driver.
std::unique_ptr<Device> MakeCudaDevice(int index);

// GPUs that this process sees; 0 where there is no driver.
int CountCudaDevices();

// A stream of GPU `index`. Work runs in Enqueue with it as the current stream.
std::unique_ptr<Stream> MakeCudaStream(int index, StreamPriority priority, StreamError error);

}  // namespace tandem::device
