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

// Decides what happens to gradients (gradients.cc): it allocates the buffers that passes write them to, and
// appends what must follow the last write of each. It appends to the program to which the passes are
// appended, too.
class Contributions {
 public:
  // `passes` has all instructions of the program, node passes among them, and outlives this object. Their
  // operands are not read.
  Contributions(const Outline& outline, const BuildOptions& options, const StageFrame& frame,
                const std::vector<Instruction>& passes, Program& program);

  // The operand of the next pass that writes the gradient of the part.
  Operand Write(UnitPart part, int microbatch);

  // Must be called when pass i, of a node, has been appended. Appends what this pass completes.
  void After(int i);

 private:
  // The passes that write one part in one microbatch.
  struct Writers {
    int all = 0;  // number of passes that write it
    int before = 0;
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
  // Whether the part's gradient is a sum, of several passes or within one, which the transport type may not
  // hold.
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
