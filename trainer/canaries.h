// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"
#include "plan/job_plan.h"

namespace tandem::device {
class Device;
class Region;
}  // namespace tandem::device

namespace tandem::trainer {

class StageMemory;

// A debug mode: bytes of one value where no step may write, and a look at them between runs. They lie
//   * in the padding of every unit's weights, moments and accumulator: between parameters and behind the
//   last;
//   * where no buffer of any program lies: between buffers, as far as alignment leaves room there.
// The value is finite in every type of elements, and so large that its square is not: padding that somebody
// reads as a number shows, too. Of a place only the first 4 KiB are looked at, where an overrun begins.
// Used by one thread.
class Canaries {
 public:
  // All outlive it. `rank`: whose memory it is. Throws device::OutOfMemory.
  Canaries(const plan::JobPlan& plan, int rank, const StageMemory& memory, device::Device& device);
  ~Canaries();
  Canaries(const Canaries&) = delete;
  Canaries& operator=(const Canaries&) = delete;

  // Before the first run, when weights are in their places. Blocks.
  void Plant() const;

  // Throws std::logic_error, saying where, if one is gone. Blocks until the device has done all that is
  // issued.
  void Check() const;

 private:
  struct Place {
    device::Memory memory;
    int64_t at = 0;    // in copy_
    std::string name;  // "the padding of layers.3 weights behind model.layers.3.mlp.down_proj.weight"
  };

  void Add(device::Memory memory, std::string name);
  void AddPadding(const plan::JobPlan& plan, int rank, const StageMemory& memory);
  void AddGaps(const plan::JobPlan& plan, const StageMemory& memory);

  device::Device& device_;
  std::vector<Place> places_;
  int64_t bytes_ = 0;                     // of all
  std::unique_ptr<device::Region> copy_;  // of them, on the host
};

}  // namespace tandem::trainer
