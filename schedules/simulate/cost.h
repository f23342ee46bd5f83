// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "schedules/program/outline.h"
#include "schedules/program/placement.h"
#include "schedules/program/program.h"
#include "schedules/simulate/device_profile.h"

namespace tandem::schedules {

// What an instruction costs on a device: the time that was measured for its kind, else what the rates say.

// How the members of a process group lie among the ranks of the job.
struct GroupShape {
  int ranks = 1;
  int stride = 1;  // the least distance between the numbers of two members; 1: they are neighbours
  bool operator==(const GroupShape&) const = default;
};

// What the work of a rank depends on, beside outline and program.
struct Workload {
  std::map<std::string, GroupShape> groups;  // that a communicator of the program names
  Strategy strategy;                         // of the dense units: BuildOptions::strategy
  Strategy expert_strategy;
};

// The work of one instruction, independent of any device.
struct Work {
  double flops = 0;
  double bytes = 0;       // read and written in the device's memory
  double link_bytes = 0;  // the buffer that a collective gathers, reduces or exchanges
  int ranks = 1;          // of the group that it communicates with; 1: it does not
  int stride = 1;         // of that group
  bool operator==(const Work&) const = default;
};

// By the rules of its opcode (opcode.h), from the declared access of a node's pass (a Recompute's without
// what was kept) and otherwise from the bytes of the operands: what is read or written moves once, what is
// added to moves twice. An Unshard gathers the buffer that it writes; ReduceGradients exchanges what it
// reads, and then folds as many bytes of pieces into the accumulator; where the placement of the optimizer's
// state leaves the whole sum on every rank of the axis, the accumulator is gathered, too. ReduceOuter does
// the same to the accumulator. A rank that is alone on the inner axis folds, and exchanges nothing. Requires
// operands that exist, and groups that the workload has.
Work WorkOf(const Outline& outline, const Program& program, const Instruction& instruction,
            const Workload& workload);

// What of link_bytes a rank sends: of a collective it has a share already, what goes to a peer goes whole.
double CrossingBytes(const Work& work, Opcode opcode);

// "backward-input layers.*.mlp bf16", "reduce layers.* add": opcode and target without microbatch and
// numbers, of a node's pass the type that it computes in, and whether it adds to a gradient that others of
// its opcode overwrite. What has the same kind and the same work takes the same time.
std::string KindOf(const Outline& outline, const Program& program, const Instruction& instruction);

// Whether it runs anything on its stream: all but HostWait, which only the issuing thread does.
bool RunsSomething(Opcode opcode);

enum class CostSource : uint8_t { kNothing, kMeasured, kScaled, kEstimated };

struct Cost {
  double seconds = 0;  // while no other stream works
  double cores = 0;    // processors that it keeps busy meanwhile, where streams share them
  CostSource source = CostSource::kNothing;
};

// Costs of a program's instructions on one device. Not thread-safe.
class CostModel {
 public:
  // All arguments outlive it. Requires that the profile has a rate for the compute type of every node with
  // FLOPs.
  CostModel(const Outline& outline, const Program& program, const Workload& workload,
            const DeviceProfile& profile);

  // A measured time is taken where there is one of the same kind and work; one of the same kind and other
  // work is scaled by the ratio of the two estimates; else
  //   max(products and scores / their rates + row bytes / memory rate, bytes / memory rate)
  //   + the collective (LinkRates) + overhead.
  Cost Of(const Instruction& instruction) const;

 private:
  double Estimate(const Work& work, const Instruction& instruction) const;
  double LocalSeconds(const Work& work, const Instruction& instruction) const;
  // products: what stands behind the type in the profile's name of the rate (" grouped").
  double FlopsPerSecond(const Node& node, absl::string_view products) const;
  double CollectiveSeconds(const Work& work, Opcode opcode) const;

  const Outline& outline_;
  const Program& program_;
  const Workload& workload_;
  const DeviceProfile& profile_;
};

}  // namespace tandem::schedules
