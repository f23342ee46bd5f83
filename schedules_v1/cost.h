#pragma once

#include <string>

#include "schedules_v1/device_profile.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// What an instruction costs on a device: the time that was measured for its kind, else what the rates say.

// Beside the outline, what the work of a rank depends on.
struct Workload {
  std::string compute;    // compute type, a key of DeviceProfile::compute
  int element_bytes = 0;  // of parameters, gradients and optimizer state
  int ranks = 1;          // that share a unit
};

// The work of one instruction, independent of any device.
struct Work {
  double flops = 0;
  double bytes = 0;       // read and written in the device's memory
  double link_bytes = 0;  // the buffer that a collective gathers or reduces
  bool collective = false;
  bool operator==(const Work&) const = default;
};

// An Unshard gathers its slot, ReduceGradients exchanges its slot, reads the pieces and accumulates them in
// the shard, an OptimizerStep reads weights, gradients and two moments and writes all but the gradients.
// On one rank a collective is a copy. Release and Reshard, which only mark a position, are no work.
Work WorkOf(const Outline& outline, const Program& program, const Instruction& instruction,
            const Workload& workload);

// Whether it runs anything on its stream at all: all but Release and Reshard.
bool RunsSomething(Opcode opcode);

// "backward layers.*.mlp", "reduce layers.* add": opcode and target without microbatch and numbers, and
// whether a gradient is added to. What has the same kind and the same work takes the same time.
std::string KindOf(const Outline& outline, const Instruction& instruction);

enum class CostSource : uint8_t { kNothing, kMeasured, kScaled, kEstimated };

struct Cost {
  double seconds = 0;  // running alone
  double cores = 0;    // processors that it keeps busy meanwhile, where streams share them
  CostSource source = CostSource::kNothing;
};

// Costs of a program's instructions on one device. Not thread-safe.
class CostModel {
 public:
  // All arguments outlive it. Requires a compute type that the profile has a rate for.
  CostModel(const Outline& outline, const Program& program, const Workload& workload,
            const DeviceProfile& profile);

  // A measured time is taken where there is one of the same kind and work; one of the same kind and other
  // work is scaled by the ratio of the two estimates; else
  //   max(flops / rate, bytes / memory rate) + the collective (LinkRates) + overhead.
  Cost Of(const Instruction& instruction) const;

 private:
  double Estimate(const Work& work, int ranks, Opcode opcode) const;
  double CollectiveSeconds(double bytes, int ranks, Opcode opcode) const;

  const Outline& outline_;
  const Program& program_;
  const Workload& workload_;
  const DeviceProfile& profile_;
  double flops_per_second_ = 0;
};

}  // namespace tandem::schedules_v1
