#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "schedules/outline.h"
#include "schedules/program.h"

namespace tandem::schedules {

// The part of the checker that walks one program in issue order and knows what is open: slots, values,
// gradients, the reductions of each unit. A program begins and ends with nothing open. Issue order stands
// for every order, because what conflicts is ordered as it is issued (waits point back, and the checker
// proves that nothing else is in conflict).
//
// The order of additions is part of what it proves, since another order gives other bits: a unit's reductions
// come in the order of their microbatches; within a microbatch the contributions to one gradient come in the
// reverse order of the outline's nodes.
//
// Every method requires operands that operands.h accepts; `outline` and `program` must outlive it.
class Lifetimes {
 public:
  Lifetimes(const Outline& outline, const Program& program);

  // Instruction i, from 0, each once.
  absl::Status Apply(int i);

  // After the last instruction: everything is closed, every unit that has gradients was stepped.
  absl::Status End();

 private:
  enum class State : uint8_t { kNever, kOpen, kRead, kClosed };

  // A value of one microbatch, or its gradient. kRead: open, and read since it was last written.
  struct Life {
    State state = State::kNever;
    int opened = -1;   // instruction
    int last = -1;     // instruction that touched it last
    int written = -1;  // instruction that wrote it last
  };

  // A slot's holder, seen from the unit: one lease at a time.
  struct Lease {
    int opened = -1;  // instruction; -1: none is open
    int closed = -1;  // instruction that closed the former one
    int microbatch = -1;
    SlotUse slot;
    std::vector<int> writes;   // gradient leases: per part, contributions so far
    std::vector<int> written;  // gradient leases: per part, instruction of the last one
  };

  absl::Status ApplyNode(int i);
  absl::Status ApplyReport(int i);
  absl::Status ApplyRelease(int i);
  absl::Status ApplyUnshard(int i);
  absl::Status ApplyReshard(int i);
  absl::Status ApplyReduce(int i);
  absl::Status ApplyNorm(int i);
  absl::Status ApplyStep(int i);
  absl::Status ApplySnapshot(int i);

  absl::Status ReadValue(int i, ValueId value, int microbatch, bool of_gradient);
  absl::Status WriteValue(int i, ValueId value);
  absl::Status WriteValueGradient(int i, ValueId value, bool add);
  absl::Status UseParameters(int i, const SlotUse& slot);
  absl::Status OpenGradientSlot(int i, const SlotUse& slot);
  absl::Status WriteParameterGradient(int i, UnitPart part, bool add);

  Life& LifeOf(ValueId value, int microbatch, bool of_gradient);
  int& Holder(const SlotUse& slot);  // unit in the slot, or -1
  int& Reduction(UnitId unit, int microbatch);
  int LaterContribution(UnitPart part, int microbatch, int after) const;
  absl::Status CheckFoldOrder(int i, int before, absl::string_view name) const;
  std::string Text(int i, absl::string_view what, int other, absl::string_view rest) const;
  absl::Status Refuse(int i, absl::string_view what, int other, absl::string_view rest = "") const;
  absl::Status RefuseBy(absl::string_view hygiene_rule, int i, absl::string_view what, int other,
                        absl::string_view rest = "") const;

  const Outline& outline_;
  const Program& program_;
  std::vector<Life> lives_;
  std::vector<Lease> parameters_;             // per unit
  std::vector<Lease> gradients_;              // per unit
  std::vector<std::vector<int>> holders_[2];  // role → class → index → unit
  std::vector<std::vector<int>> expected_;    // unit → part → contributions of one microbatch
  std::vector<int> reductions_;               // unit × microbatch → instruction, or -1
  std::vector<int> steps_;                    // unit → its OptimizerStep, or -1
  int step_ = -1;                             // the last OptimizerStep, or -1
  int norm_ = -1;                             // GradientNorm, or -1
  int report_ = -1;                           // Report, or -1
  int snapshot_ = -1;                         // Snapshot, or -1
  int load_ = -1;                             // the first LoadBatch, or -1
};

}  // namespace tandem::schedules
