// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "schedules/program/program.h"

namespace tandem::trainer {

// What an instruction does when its stream gets to it; bound to tensors at fixed addresses.
using Call = std::function<void()>;

// One instruction of a program, bound for the runs of each parity: they differ in the elements of rings
// alone.
struct BoundInstruction {
  const schedules::Instruction* instruction = nullptr;
  int index = -1;                                    // in the program
  std::array<std::shared_ptr<const Call>, 2> calls;  // others may have them too
};

// Consecutive work of one stream: nothing in it waits but its first instruction, and others wait for nothing
// in it but its last.
struct Segment {
  schedules::StreamId stream = -1;
  std::vector<int> waits;  // indices of segments, of other streams
  bool awaited = false;
  bool replayed = false;     // Instruction::segment: one graph replays all of it
  bool holds_issue = false;  // a host wait, alone: nothing is issued until what it waits for has ended
  std::vector<const BoundInstruction*> instructions;
};

// A program with its calls, cut into the pieces that are handed to streams. Immutable; not movable, since
// segments point to instructions.
class BoundProgram {
 public:
  // bind: the call of an instruction in runs of that parity. `program` outlives it.
  BoundProgram(const schedules::Program& program,
               const std::function<std::shared_ptr<const Call>(const schedules::Instruction& instruction,
                                                               int parity)>& bind);
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const schedules::Program& program() const { return program_; }

  // In issue order.
  const std::vector<BoundInstruction>& instructions() const { return instructions_; }
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  void MakeSegments();

  const schedules::Program& program_;
  std::vector<BoundInstruction> instructions_;
  std::vector<Segment> segments_;
};

}  // namespace tandem::trainer
