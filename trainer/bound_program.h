// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::trainer {

// Runs an instruction on its stream. It is bound to tensors at fixed addresses.
using Call = std::function<void()>;

// One instruction of a program, bound once for each parity of runs. The two differ only in the elements of
// rings.
struct BoundInstruction {
  const schedules::Instruction* instruction = nullptr;
  int index = -1;                                    // index in the program
  std::array<std::shared_ptr<const Call>, 2> calls;  // may be shared with other instructions
};

// Consecutive instructions of one stream. Only the first waits for other streams, and other streams wait only
// for the last.
struct Segment {
  schedules::StreamId stream = -1;
  std::vector<int> waits;  // indices of segments on other streams
  bool awaited = false;
  bool replayed = false;  // Instruction::segment is set: one graph replays the whole segment
  // The segment is a host wait: nothing is issued until what it waits for has ended.
  bool holds_issue = false;
  std::vector<const BoundInstruction*> instructions;
};

// A program with its calls, cut into segments that are handed to streams. Immutable; not movable, because
// segments point to instructions.
class BoundProgram {
 public:
  // `bind` returns the call of an instruction in runs of that parity. `program` outlives this object.
  BoundProgram(const schedules::Program& program,
               const std::function<std::shared_ptr<const Call>(const schedules::Instruction& instruction,
                                                               int parity)>& bind);
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const schedules::Program& program() const { return program_; }

  // In the order of issue.
  const std::vector<BoundInstruction>& instructions() const { return instructions_; }
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  void MakeSegments();

  const schedules::Program& program_;
  std::vector<BoundInstruction> instructions_;
  std::vector<Segment> segments_;
};

}  // namespace tandem::trainer
