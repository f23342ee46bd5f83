// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "device/device.h"

namespace tandem::device {

// Implements Device::Capture for GPU `index`. During a capture, other threads may use the GPU and allocate
// its memory, and other streams may have work.
std::unique_ptr<Graph> CaptureCudaGraph(int index, const std::function<void()>& work);

}  // namespace tandem::device
