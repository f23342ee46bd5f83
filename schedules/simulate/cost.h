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

// Estimates what an instruction costs on a device: from the time measured for its kind, or if there is none,
// from the device's rates.

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

// Computes the work by the rules of the opcode (opcode.h). For a pass of a node it is what the node declares
// (Access; for a Recompute, without what was kept). For other instructions the bytes of the operands count:
// once if they are read or written, twice if they are added to.
//
// An Unshard gathers the buffer that it writes. ReduceGradients exchanges what it reads, and then adds as
// many received bytes to the accumulator; if every rank of the inner axis keeps the whole accumulator (the
// optimizer is replicated), it also gathers the accumulator. ReduceOuter exchanges and gathers the
// accumulator over the outer axis in the same way. A rank that is alone on the inner axis adds without an
// exchange. Requires operands that exist, and the groups in the workload.
Work WorkOf(const Outline& outline, const Program& program, const Instruction& instruction,
            const Workload& workload);

// The part of link_bytes that a rank sends. In a collective each rank keeps its own share; a value for a peer
// is sent as a whole.
double CrossingBytes(const Work& work, Opcode opcode);

// The kind of an instruction: "backward-input layers.*.mlp bf16", "reduce layers.* add". It consists of the
// opcode, the target's name without its numbers, the type that a pass of a node computes in, and "add" if the
// instruction adds to a gradient that others of the same opcode overwrite. Instructions with the same kind
// and work take the same time.
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
  // All arguments must outlive this object. Requires that the profile has a rate for the compute type of
  // every node with FLOPs.
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
