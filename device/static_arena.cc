// SPDX-License-Identifier: Apache-2.0
#include "device/static_arena.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "device/device.h"

namespace tandem::device {
StaticArena::StaticArena(Device& device, std::shared_ptr<Region> region, bool fill_with_nan)
    : region_(std::move(region)) {
  if (fill_with_nan && region_->bytes() > 0) {
    device.Fill(region_->begin(), kNanByte, region_->bytes());
    device.Synchronize();
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

Memory StaticArena::all() const { return {.begin = region_->begin(), .bytes = region_->bytes()}; }

}  // namespace tandem::device
