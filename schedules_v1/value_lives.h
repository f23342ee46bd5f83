#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"
#include "schedules_v1/refusal.h"

namespace tandem::schedules_v1 {

// The part of Lifetimes (lifetimes.h) that knows which values and value gradients of each microbatch are
// open: written once, read while they are there, released once. A gradient is read when every node that
// contributes to it has, and not before. All arguments outlive it.
class ValueLives {
 public:
  ValueLives(const Outline& outline, const Program& program, const Refusal& refuse);

  // Instruction i reads or writes it, of its microbatch unless another is given.
  absl::Status Read(int i, ValueId value, int microbatch);
  absl::Status ReadGradient(int i, ValueId value);
  absl::Status Write(int i, ValueId value);
  absl::Status WriteGradient(int i, ValueId value, bool add);

  // Instruction i is a Release.
  absl::Status Release(int i);

  // Nothing is open after the last instruction.
  absl::Status End() const;

 private:
  enum class State : uint8_t { kNever, kOpen, kClosed };

  // A value of one microbatch, or its gradient.
  struct Life {
    State state = State::kNever;
    int opened = -1;        // instruction
    int last = -1;          // instruction that touched it last
    int written = -1;       // instruction that wrote it last
    int contributions = 0;  // of a gradient
  };

  Life& LifeOf(ValueId value, int microbatch, bool of_gradient);
  absl::Status CheckOpen(int i, const Life& life, ValueId value, int microbatch, bool of_gradient) const;
  int LaterContribution(ValueId value, int microbatch, int after) const;

  const Outline& outline_;
  const Program& program_;
  const Refusal& refuse_;
  std::vector<Life> lives_;
  std::vector<int> expected_;  // value → contributions to its gradient in one microbatch
};

}  // namespace tandem::schedules_v1
