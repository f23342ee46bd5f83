// SPDX-License-Identifier: Apache-2.0
#include "device/static_arena.h"

#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "device/device.h"

namespace tandem::device {
StaticArena::StaticArena(Device& device, std::shared_ptr<Region> region, bool fill_with_nan)
    : device_(device), region_(std::move(region)) {
  if (fill_with_nan && region_->bytes() > 0) {
    device_.Fill(region_->begin(), kNanByte, region_->bytes());
    device_.Synchronize();
  }
}

StaticArena::~StaticArena() = default;

Memory StaticArena::At(int64_t offset, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > region_->bytes() || bytes > region_->bytes() - offset) {
    throw std::out_of_range("bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " +
                            std::to_string(bytes) + " of an arena of " + std::to_string(region_->bytes()) +
                            " bytes");
  }
  return {.begin = region_->begin() + offset, .bytes = bytes};
}

at::Tensor StaticArena::At(int64_t offset, const std::vector<int64_t>& shape, c10::ScalarType dtype) const {
  return TensorIn(device_, At(offset, region_->bytes() - offset), shape, dtype);
}

Memory StaticArena::all() const { return {.begin = region_->begin(), .bytes = region_->bytes()}; }

}  // namespace tandem::device
