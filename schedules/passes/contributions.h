// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedules/build/stage_frame.h"
#include "schedules/program/outline.h"
#include "schedules/program/program.h"
#include "schedules/program/signature.h"

namespace tandem::schedules {

// Appends a local buffer to the program.
BufferId AddBuffer(Program& program, std::string name, BufferKind kind, int subject, int microbatch,
                   Bytes bytes, std::vector<BufferPart> parts = {});

// Decides what happens to the gradients of units (gradients.cc). While the caller appends the passes to
// `program`, it adds the buffers to which they write contributions (program.h), and appends the Zero, Round,
// Accumulate and reductions of each contribution behind the last pass that writes it.
class Contributions {
 public:
  // `passes` has all instructions that the caller will append, node passes among them, and must outlive this
  // object. Their operands are not read.
  Contributions(const Outline& outline, const BuildOptions& options, const StageFrame& frame,
                const std::vector<Instruction>& passes, Program& program);

  // Returns the operand for the next pass, in issue order, that writes the gradient of the part. Call once
  // for each such pass.
  Operand Write(UnitPart part, int microbatch);

  // Must be called directly after passes[i], the pass of a node, has been appended. Appends the instructions
  // for the contributions that this pass completes.
  void After(int i);

 private:
  // The passes that write one part in one microbatch.
  struct Writers {
    int all = 0;        // number of passes that write it
    int before = 0;     // number of these passes for which Write was called
    bool sums = false;  // whether one of them adds to it more than once
  };
  // The buffers of one unit and one microbatch.
  struct Buffers {
    BufferId contribution = -1;
    BufferId collected = -1;
    int last_pass = -1;  // the last pass that writes to them; if none does, the microbatch's last pass
  };
  Writers& WritersOf(UnitId unit, int part, int microbatch) {
    return writers_[static_cast<size_t>(microbatch) * num_parts_ + first_part_[unit] + part];
  }
  Buffers& BuffersOf(UnitId unit, int microbatch) {
    return buffers_[microbatch * outline_.units.size() + unit];
  }
  // Whether passes write the part's gradient to the collected buffer: it is a sum, of several passes or
  // within one, and its transport type is not the main type.
  bool Collects(UnitPart part, int microbatch);
  BufferId Contribution(UnitId unit, int microbatch);
  BufferId Collected(UnitId unit, int microbatch);
  Instruction& Emit(Opcode opcode, UnitId unit, int microbatch, StreamId stream, CommunicatorId communicator);
  void Round(UnitId unit, int part, int microbatch);
  void Complete(UnitId unit, int microbatch);
  void Reduce(UnitId unit, int microbatch, NamedOperand gradient, int64_t staging_bytes, bool last);

  const Outline& outline_;
  const BuildOptions& options_;
  const StageFrame& frame_;
  const std::vector<Instruction>& passes_;
  Program& program_;
  std::vector<int> first_part_;  // unit → index of its first part among all units' parts
  int num_parts_ = 0;
  std::vector<Writers> writers_;
  std::vector<Buffers> buffers_;
  std::vector<int> completed_;  // unit → microbatches
  std::vector<BufferId> full_;  // unit
};

}  // namespace tandem::schedules
