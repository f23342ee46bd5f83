// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"
#include "schedules/program/sharding_strategy.h"
#include "schedules/simulate/device_profile.h"

namespace tandem::schedules {

// Estimates what an instruction costs on a device: by the time measured for its kind, or else by the device's
// rates.

// How the members of a process group are distributed over the ranks of the job.
struct GroupShape {
  int ranks = 1;
  int stride = 1;  // the smallest difference between the ranks of two members; 1: they are neighbours
  bool operator==(const GroupShape&) const = default;
};

// What the work of a rank depends on besides outline and program.
struct Workload {
  std::map<std::string, GroupShape> groups;  // by the name that a communicator of the program has
  Strategy strategy;                         // the strategy of the dense units
  Strategy expert_strategy;
};

// Computes the work by the rules of the opcode (opcode.h). A node's pass has its declared access (a Recompute
// has it without what was kept). Otherwise the operands' bytes count: what is read or written moves once, and
// what is added to moves twice.
//
// An Unshard gathers the buffer that it writes. ReduceGradients exchanges what it reads, and then folds as
// many bytes of pieces into the accumulator; if the placement of the optimizer's state leaves the whole sum
// on every rank of the axis, it also gathers the accumulator. ReduceOuter does the same to the accumulator. A
// rank that is alone on the inner axis folds without an exchange. Requires operands that exist, and the
// groups in the workload.
Work WorkOf(const Outline& outline, const Program& program, const Instruction& instruction,
            const Workload& workload);

// The part of link_bytes that a rank sends. A rank of a collective already has its own share; what goes to a
// peer goes as a whole.
double CrossingBytes(const Work& work, Opcode opcode);

// The kind of an instruction: "backward-input layers.*.mlp bf16", "reduce layers.* add". It has the opcode,
// the target without microbatch and numbers, for a node's pass the type that it computes in, and whether the
// instruction adds to a gradient that others of its opcode overwrite. Instructions with the same kind and
// work take the same time.
std::string KindOf(const Outline& outline, const Program& program, const Instruction& instruction);

// Whether instructions of this opcode run on their stream. Only a HostWait does not: the issuing thread
// waits.
bool RunsSomething(Opcode opcode);

enum class CostSource : uint8_t { kNothing, kMeasured, kScaled, kEstimated };

struct Cost {
  double seconds = 0;  // if no other stream works
  double cores = 0;    // how many processors it keeps busy, if streams share them
  CostSource source = CostSource::kNothing;
};

// Costs of a program's instructions on one device. Not thread-safe.
class CostModel {
 public:
  // All arguments outlive it. Requires that the profile has a rate for the compute type of every node with
  // FLOPs.
  CostModel(const Outline& outline, const Program& program, const Workload& workload,
            const DeviceProfile& profile);

  // Uses a measured time of the same kind and work if there is one. If there is one of the same kind but
  // other work, it is scaled by the ratio of the two estimates. Otherwise the estimate is
  //
  //   max(matrix products and scores / their rates + row bytes / memory rate, bytes / memory rate)
  //   + the collective (LinkRates) + overhead.
  Cost Of(const Instruction& instruction) const;

 private:
  double Estimate(const Work& work, const Instruction& instruction) const;
  double LocalSeconds(const Work& work, const Instruction& instruction) const;
  // `products` is the suffix behind the type in the profile's name of the rate (" grouped").
  double FlopsPerSecond(const Node& node, absl::string_view products) const;
  double CollectiveSeconds(const Work& work, Opcode opcode) const;

  const Outline& outline_;
  const Program& program_;
  const Workload& workload_;
  const DeviceProfile& profile_;
};

}  // namespace tandem::schedules
