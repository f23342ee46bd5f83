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

// A debugging aid: fills memory that no step may write with a known byte, and checks it between runs. The
// memory is
//   * the padding of every unit's weights, moments and accumulator, between and behind parameters;
//   * the gaps that alignment leaves between the buffers of all programs.
//
// An element of any type that consists of this byte is finite but has an infinite square, so code that reads
// padding as a number is found, too. Only the first 4 KiB of each place are checked, because an overrun
// begins there. Used by one thread.
class Canaries {
 public:
  // All arguments must outlive this object. `rank` is the rank that has the memory. Throws
  // device::OutOfMemory.
  Canaries(const plan::JobPlan& plan, int rank, const StageMemory& memory, device::Device& device);
  ~Canaries();
  Canaries(const Canaries&) = delete;
  Canaries& operator=(const Canaries&) = delete;

  // Fills the places. Must be called before the first run, when the weights are in memory. Blocks.
  void Plant() const;

  // Throws std::logic_error, with the place, if a byte has changed. Blocks until the device has done all work
  // that was issued.
  void Check() const;

 private:
  struct Place {
    device::Memory memory;
    int64_t at = 0;    // offset in copy_
    std::string name;  // "the padding of layers.3 weights behind model.layers.3.mlp.down_proj.weight"
  };

  void Add(device::Memory memory, std::string name);
  void AddPadding(const plan::JobPlan& plan, int rank, const StageMemory& memory);
  void AddGaps(const plan::JobPlan& plan, const StageMemory& memory);

  device::Device& device_;
  std::vector<Place> places_;
  int64_t bytes_ = 0;                     // sum over all places
  std::unique_ptr<device::Region> copy_;  // the places' bytes, on the host
};

}  // namespace tandem::trainer
