// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "device/memory.h"

namespace tandem::device {

class Device;
class Region;

// One region in which everything lies at a byte offset that was assigned beforehand. It hands out views and
// does not track them; the planner of the offsets decides which views may share bytes, and when. Used by the
// issuing thread. Views are valid as long as the arena.
class StaticArena {
 public:
  // `region` is memory of `device` (Device::Reserve, or what a communicator can register,
  // comm/communicator_factory.h), shared with the communicators that register it; or of the host, which the
  // device copies to and from (Device::ReserveHost). fill_with_nan: every byte is 0xFF at the start, a NaN of
  // every floating-point type; otherwise what is there is unspecified. Blocks until it is filled.
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
