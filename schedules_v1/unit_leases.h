#pragma once

#include <vector>

#include "absl/status/status.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"
#include "schedules_v1/refusal.h"

namespace tandem::schedules_v1 {

// The part of Lifetimes (lifetimes.h) that knows which unit holds which slot: gathers from Unshard to
// Reshard, gradients from their first contribution to their reduction. A slot has one holder and a unit one
// lease of each role at a time. All arguments outlive it.
class UnitLeases {
 public:
  UnitLeases(const Outline& outline, const Program& program, const Refusal& refuse);

  // Instruction i is that.
  absl::Status Unshard(int i);
  absl::Status Reshard(int i);
  absl::Status ReduceGradients(int i);

  // Instruction i is a pass of a node: it reads parameters, contributes to a gradient in a slot, and writes
  // one of the parts there.
  absl::Status UseParameters(int i, const SlotUse& slot);
  absl::Status OpenGradients(int i, const SlotUse& slot);
  absl::Status WritePart(int i, UnitPart part, bool add);

  // The instruction that gathered what is open of the unit; -1: nothing is.
  int GatheredBy(UnitId unit) const { return parameters_[unit].opened; }
  // The unit's reduction of a microbatch, or -1; the newest of all microbatches, or -1.
  int Reduction(UnitId unit, int microbatch) const {
    return reductions_[unit * program_.num_microbatches + microbatch];
  }
  int LastReduction(UnitId unit) const { return gradients_[unit].closed; }
  // The first contribution to the gradient that is open, or -1.
  int ContributedBy(UnitId unit) const { return gradients_[unit].opened; }

  // Of one unit, nothing is open after the last instruction.
  absl::Status End(UnitId unit) const;

 private:
  // A slot's holder, seen from the unit.
  struct Lease {
    int opened = -1;  // instruction; -1: none is open
    int closed = -1;  // instruction that closed the former one
    int microbatch = -1;
    SlotUse slot;
    std::vector<int> writes;   // gradient leases: per part, contributions so far
    std::vector<int> written;  // gradient leases: per part, instruction of the last one
  };

  int& Holder(const SlotUse& slot);  // unit in the slot, or -1
  int LaterContribution(UnitPart part, int microbatch, int after) const;
  absl::Status CheckContributions(int i) const;
  absl::Status CheckShard(int i) const;

  const Outline& outline_;
  const Program& program_;
  const Refusal& refuse_;
  std::vector<Lease> parameters_;             // per unit
  std::vector<Lease> gradients_;              // per unit
  std::vector<std::vector<int>> holders_[2];  // role → class → index → unit
  std::vector<std::vector<int>> expected_;    // unit → part → contributions of one microbatch
  std::vector<int> reductions_;               // unit × microbatch → instruction, or -1
  std::vector<int> newest_;                   // unit → microbatch that was reduced last, or -1
};

}  // namespace tandem::schedules_v1
