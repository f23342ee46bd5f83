// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/segments.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace tandem::schedules {
namespace {

class SegmentFinder {
 public:
  SegmentFinder(const Program& program, const std::vector<bool>& scope)
      : program_(program), scope_(scope), open_(program.streams.size(), -1) {}

  std::vector<Segment> Run() {
    for (int i = 0; i < static_cast<int>(program_.instructions.size()); ++i) {
      const Instruction& in = program_.instructions[i];
      int& open = open_[in.stream];
      if (!CanBeIn(in)) {
        open = -1;
        if (in.opcode == Opcode::kHostWait) {
          std::fill(open_.begin(), open_.end(), -1);
        }
        continue;
      }
      if (open < 0 || !Continues(segments_[open], in)) {
        open = static_cast<int>(segments_.size());
        segments_.emplace_back();
      }
      Segment& segment = segments_[open];
      segment.instructions.push_back(i);
      segment.num_waits += static_cast<int>(in.waits.size());
      segment.num_ring_operands +=
          static_cast<int>(std::count_if(in.operands.begin(), in.operands.end(), [&](const Operand& operand) {
            return program_.buffers[operand.buffer].life == Life::kRing;
          }));
    }
    return std::move(segments_);
  }

 private:
  bool CanBeIn(const Instruction& in) const {
    return IsNodePass(in.opcode) && scope_[in.target] && in.communicator < 0 &&
           std::none_of(in.operands.begin(), in.operands.end(), [&](const Operand& operand) {
             const Buffer& buffer = program_.buffers[operand.buffer];
             return IsHost(buffer.kind) && operand.mode == Mode::kReads;
           });
  }

  bool Continues(const Segment& segment, const Instruction& in) const {
    const int first = segment.instructions.front();
    return program_.instructions[first].microbatch == in.microbatch &&
           std::all_of(in.waits.begin(), in.waits.end(),
                       [&](const Wait& wait) { return wait.instruction < first; });
  }

  const Program& program_;
  const std::vector<bool>& scope_;
  std::vector<int> open_;  // by stream: the segment that its next instruction may be in, or -1
  std::vector<Segment> segments_;
};

}  // namespace

std::vector<Segment> SegmentsOf(const Program& program, const std::vector<bool>& scope) {
  return SegmentFinder(program, scope).Run();
}

int CountGraphs(const Program& program, const std::vector<Segment>& segments) {
  std::set<std::vector<int64_t>> graphs;
  for (const Segment& segment : segments) {
    std::vector<int64_t> calls;
    for (const int i : segment.instructions) {
      const Instruction& in = program.instructions[i];
      calls.insert(calls.end(), {static_cast<int64_t>(in.opcode), in.target, in.stream});
      for (const Operand& operand : in.operands) {
        const Buffer& buffer = program.buffers[operand.buffer];
        calls.insert(calls.end(), {static_cast<int64_t>(operand.role), static_cast<int64_t>(operand.mode),
                                   buffer.life == Life::kRing ? -1 : buffer.address, operand.part});
      }
    }
    graphs.insert(std::move(calls));
  }
  return static_cast<int>(graphs.size());
}

}  // namespace tandem::schedules
