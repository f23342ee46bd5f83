// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace tandem::device {

// GPU `index` of those that this process sees. Memory is one cudaMalloc a region; streams are non-blocking
// CUDA streams, events cudaEvents; memory of the host is pinned. Throws std::runtime_error, naming the
// index, where there is no such GPU or no driver.
std::unique_ptr<Device> MakeCudaDevice(int index);

// GPUs that this process sees; 0 where there is no driver.
int CountCudaDevices();

// A stream of GPU `index`. Work runs in Enqueue with it as the current stream.
std::unique_ptr<Stream> MakeCudaStream(int index, StreamPriority priority, StreamError error);

}  // namespace tandem::device
