// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "device/memory.h"

namespace tandem::device {

class Device;
class Region;

// A region in which every buffer has a byte offset that was assigned beforehand. The arena hands out views
// and does not track them: whatever assigned the offsets decides which views may share bytes, and when. Used
// by the issuing thread. Views are valid as long as the arena.
class StaticArena {
 public:
  // `region` is memory of `device` (from Device::Reserve, or from CommunicatorFactory::Reserve, then shared
  // with the communicators that register it), or of the host (from Device::ReserveHost). fill_with_nan: sets
  // every byte to kNanByte and blocks until that is done; otherwise the contents stay unspecified.
  StaticArena(Device& device, std::shared_ptr<Region> region, bool fill_with_nan = false);
  ~StaticArena();
  StaticArena(const StaticArena&) = delete;
  StaticArena& operator=(const StaticArena&) = delete;

  // Throws std::out_of_range unless [offset, offset + bytes) lies in the region.
  Memory At(int64_t offset, int64_t bytes) const;

  Memory all() const;
  const std::shared_ptr<Region>& region() const { return region_; }

 private:
  const std::shared_ptr<Region> region_;
};

}  // namespace tandem::device
