// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/segments.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/check.h"
#include "schedules/passes/contributions.h"
#include "schedules/passes/live_locals.h"
#include "schedules/passes/passes.h"
#include "schedules/program/signature.h"

namespace tandem::schedules {
namespace {

// Instructions of a program without waits that would be one segment, ascending.
std::vector<std::vector<int>> FindSegments(const std::vector<bool>& replayed, const Program& program) {
  Program waiting = program;
  InsertWaits(std::numeric_limits<int64_t>::max(), {}, waiting);
  std::vector<bool> awaited(waiting.instructions.size(), false);
  for (const Instruction& in : waiting.instructions) {
    for (const Wait& wait : in.waits) {
      // Gathers are issued well ahead of their use.
      awaited[wait.instruction] = awaited[wait.instruction] || in.opcode != Opcode::kUnshard;
    }
  }
  std::vector<std::vector<int>> segments;
  std::vector<int> open(waiting.streams.size(), -1);  // by stream: what its next instruction may be in
  for (int i = 0; i < static_cast<int>(waiting.instructions.size()); ++i) {
    const Instruction& in = waiting.instructions[i];
    if (in.opcode == Opcode::kHostWait) {
      std::fill(open.begin(), open.end(), -1);  // what is issued behind it stays there
    }
    int& segment = open[in.stream];
    if (!IsNodePass(in.opcode) || !replayed[in.target] || !MayBeReplayed(waiting, in)) {
      segment = -1;
      continue;
    }
    if (segment < 0 || !in.waits.empty() || awaited[segments[segment].back()] ||
        waiting.instructions[segments[segment].back()].microbatch != in.microbatch) {
      segment = static_cast<int>(segments.size());
      segments.emplace_back();
    }
    segments[segment].push_back(i);
  }
  return segments;
}

// Writes the program anew, with its segments.
class SegmentMarker {
 public:
  SegmentMarker(const std::vector<std::vector<int>>& segments, Program& program)
      : segments_(segments),
        program_(program),
        old_(std::exchange(program.instructions, {})),
        moved_to_(old_.size(), -1) {}

  void Run() {
    std::vector<int> segment_of(old_.size(), -1);
    for (size_t s = 0; s < segments_.size(); ++s) {
      for (const int i : segments_[s]) {
        segment_of[i] = static_cast<int>(s);
      }
    }
    for (int i = 0; i < static_cast<int>(old_.size()); ++i) {
      const int segment = segment_of[i];
      if (segment < 0) {
        ForgetWritten(old_[i]);
        Move(i);
      } else if (segments_[segment].front() == i) {
        Segment(segment);
      }
    }
    for (Instruction& in : program_.instructions) {
      for (Wait& wait : in.waits) {
        wait.instruction = moved_to_[wait.instruction];
      }
    }
  }

 private:
  using RingPart = std::pair<BufferId, int>;

  void Move(int i) {
    moved_to_[i] = static_cast<int>(program_.instructions.size());
    program_.instructions.push_back(std::move(old_[i]));
  }

  // An instruction outside writes what locals are copies of.
  void ForgetWritten(const Instruction& in) {
    for (const Operand& operand : in.operands) {
      if (operand.mode != Mode::kReads && program_.buffers[operand.buffer].life == Life::kRing) {
        copies_.erase({operand.buffer, operand.part});
      }
    }
  }

  void Segment(int number) {
    const std::vector<int>& members = segments_[number];
    std::vector<NamedOperand> in;
    std::vector<NamedOperand> out;
    for (const int i : members) {
      old_[i].segment = number;
      for (Operand& operand : old_[i].operands) {
        if (program_.buffers[operand.buffer].life == Life::kRing) {
          Replace(old_[i].microbatch, operand, in, out);
        }
      }
    }
    const Instruction& first = old_[members.front()];
    const int microbatch = first.microbatch;
    const StreamId stream = first.stream;
    Copy(microbatch, stream, in);
    for (const int i : members) {
      Move(i);
    }
    Copy(microbatch, stream, out);
  }

  void Replace(int microbatch, Operand& operand, std::vector<NamedOperand>& in,
               std::vector<NamedOperand>& out) {
    TANDEM_CHECK(operand.mode != Mode::kAdds && !operand.former && operand.part >= 0,
                 "a pass of a node reads or writes one microbatch's part of a ring");
    const RingPart part{operand.buffer, operand.part};
    auto copy = copies_.find(part);
    const bool reads = operand.mode == Mode::kReads;
    if (copy == copies_.end() || !reads) {
      const Buffer& ring = program_.buffers[operand.buffer];
      const int64_t bytes = ring.parts[operand.part].end - ring.parts[operand.part].begin;
      const BufferId local = AddBuffer(program_, absl::StrCat(ring.name, " mb ", microbatch),
                                       BufferKind::kActivation, ring.subject, microbatch, Fixed(bytes));
      copy = copies_.insert_or_assign(part, local).first;
      const NamedOperand of_ring{reads ? Role::kSource : Role::kCopy, part.first, part.second};
      const NamedOperand of_local{reads ? Role::kCopy : Role::kSource, local};
      std::vector<NamedOperand>& copied = reads ? in : out;
      copied.insert(copied.end(), {of_ring, of_local});
    }
    operand.buffer = copy->second;
    operand.part = -1;
  }

  void Copy(int microbatch, StreamId stream, const std::vector<NamedOperand>& copied) {
    if (!copied.empty()) {
      program_.instructions.push_back({.opcode = Opcode::kCopy,
                                       .microbatch = microbatch,
                                       .stream = stream,
                                       .operands = MakeOperands(Opcode::kCopy, copied)});
    }
  }

  const std::vector<std::vector<int>>& segments_;
  Program& program_;
  std::vector<Instruction> old_;
  std::vector<int> moved_to_;
  std::map<RingPart, BufferId> copies_;
};

// The instructions [begin, end) of a segment, and all that a graph of it follows from but addresses.
struct MarkedSegment {
  int begin = 0;
  int end = 0;
  int microbatch = 0;
  std::vector<int64_t> calls;
};

// with_addresses: locals by address; else by what they have in common with others of their node.
std::vector<MarkedSegment> MarkedSegments(const Program& program, bool with_addresses) {
  std::vector<MarkedSegment> segments;
  const int count = static_cast<int>(program.instructions.size());
  for (int i = 0, end = 0; i < count; i = end) {
    end = SegmentEnd(program, i);
    if (program.instructions[i].segment < 0) {
      continue;
    }
    MarkedSegment& segment =
        segments.emplace_back(MarkedSegment{i, end, program.instructions[i].microbatch, {}});
    for (int member = i; member < end; ++member) {
      const Instruction& in = program.instructions[member];
      segment.calls.insert(segment.calls.end(),
                           {static_cast<int64_t>(in.opcode), in.target, in.stream, std::ssize(in.operands)});
      for (const Operand& operand : in.operands) {
        const Buffer& buffer = program.buffers[operand.buffer];
        const bool local = buffer.life == Life::kLocal;
        segment.calls.insert(
            segment.calls.end(),
            {static_cast<int64_t>(operand.role), static_cast<int64_t>(operand.mode), operand.part,
             static_cast<int64_t>(buffer.kind), buffer.subject, buffer.bytes.bound,
             local ? (with_addresses ? buffer.address : -1) : operand.buffer});
      }
    }
  }
  return segments;
}

// Sets of buffers.
class Sets {
 public:
  explicit Sets(size_t size) : parents_(size) { std::iota(parents_.begin(), parents_.end(), 0); }

  BufferId Of(BufferId buffer) {
    while (parents_[buffer] != buffer) {
      buffer = parents_[buffer] = parents_[parents_[buffer]];
    }
    return buffer;
  }
  void Join(BufferId a, BufferId b) { parents_[Of(b)] = Of(a); }

 private:
  std::vector<BufferId> parents_;
};

// By microbatch, segments that do the same.
using Twins = std::vector<std::map<int, MarkedSegment>>;

Twins TwinsOf(const Program& program) {
  Twins twins;
  std::map<std::vector<int64_t>, size_t> kinds;
  for (MarkedSegment& segment : MarkedSegments(program, /*with_addresses=*/false)) {
    const auto [kind, is_new] = kinds.try_emplace(std::exchange(segment.calls, {}), twins.size());
    if (is_new) {
      twins.emplace_back();
    }
    twins[kind->second].emplace(segment.microbatch, std::move(segment));
  }
  return twins;
}

// Joins what the segments access in the same place.
void Join(const Program& program, const MarkedSegment& one, const MarkedSegment& other, Sets& sets) {
  for (int k = 0; k < one.end - one.begin; ++k) {
    const std::vector<Operand>& operands = program.instructions[one.begin + k].operands;
    const std::vector<Operand>& others = program.instructions[other.begin + k].operands;
    for (size_t o = 0; o < operands.size(); ++o) {
      if (program.buffers[operands[o].buffer].life == Life::kLocal) {
        sets.Join(operands[o].buffer, others[o].buffer);
      }
    }
  }
}

// What has one address if segments `period` microbatches apart have one graph; empty: some would be in use
// at once.
std::vector<BufferId> Before(const Program& program, const Twins& twins, const std::vector<LocalLife>& lives,
                             int period) {
  Sets sets(program.buffers.size());
  for (const std::map<int, MarkedSegment>& kind : twins) {
    for (const auto& [microbatch, segment] : kind) {
      if (const auto later = kind.find(microbatch + period); later != kind.end()) {
        Join(program, segment, later->second, sets);
      }
    }
  }
  std::vector<BufferId> by_use;
  for (BufferId b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
    if (lives[b].first >= 0) {
      by_use.push_back(b);
    }
  }
  std::stable_sort(by_use.begin(), by_use.end(),
                   [&](BufferId a, BufferId b) { return lives[a].first < lives[b].first; });
  std::vector<BufferId> before(program.buffers.size(), -1);
  std::vector<BufferId> newest(program.buffers.size(), -1);  // by set
  for (const BufferId b : by_use) {
    BufferId& other = newest[sets.Of(b)];
    if (other >= 0 && lives[other].last >= lives[b].first) {
      return {};
    }
    before[b] = std::exchange(other, b);
  }
  return before;
}

// How many passes each graph has, by what it follows from.
std::map<std::vector<int64_t>, int> PassesByGraph(const Program& program) {
  std::map<std::vector<int64_t>, int> graphs;
  for (MarkedSegment& segment : MarkedSegments(program, /*with_addresses=*/true)) {
    graphs.emplace(std::move(segment.calls), segment.end - segment.begin);
  }
  return graphs;
}

}  // namespace

bool MayBeReplayed(const Program& program, const Instruction& instruction) {
  return instruction.communicator < 0 &&
         std::none_of(instruction.operands.begin(), instruction.operands.end(), [&](const Operand& operand) {
           const BufferKind kind = program.buffers[operand.buffer].kind;
           return IsHost(kind) || kind == BufferKind::kInputs;
         });
}

void MarkSegments(const std::vector<bool>& replayed, Program& program) {
  SegmentMarker(FindSegments(replayed, program), program).Run();
}

SharedAddresses ShareAddresses(const Program& program) {
  const Twins twins = TwinsOf(program);
  if (twins.empty()) {
    return {};
  }
  const std::vector<LocalLife> lives = LocalLives(program);
  for (int period = 1; period < program.num_microbatches; ++period) {
    std::vector<BufferId> before = Before(program, twins, lives, period);
    if (!before.empty()) {
      return {.period = period, .before = std::move(before)};
    }
  }
  return {.period = program.num_microbatches};
}

int CountSegments(const Program& program) {
  return static_cast<int>(MarkedSegments(program, /*with_addresses=*/false).size());
}

int CountGraphs(const Program& program) { return static_cast<int>(PassesByGraph(program).size()); }

int CountPassesOfGraphs(const Program& program) {
  int passes = 0;
  for (const auto& [calls, count] : PassesByGraph(program)) {
    passes += count;
  }
  return passes;
}

}  // namespace tandem::schedules
