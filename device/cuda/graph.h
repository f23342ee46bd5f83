// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "device/device.h"

namespace tandem::device {

// Device::Capture of GPU `index`. Other threads may use the GPU meanwhile, and take memory of it, and other
// streams have work.
std::unique_ptr<Graph> CaptureCudaGraph(int index, const std::function<void()>& work);

}  // namespace tandem::device
