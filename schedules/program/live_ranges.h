// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "schedules/program/program.h"
#include "schedules/program/vector_clock.h"

namespace tandem::schedules {

// The live ranges of a program's locals, which decide which of them may share bytes: two may if Before holds
// for them in one order or the other. For each local and each stream, keeps the place of the local's last
// access on the stream, and how many of the stream's instructions are sure to have finished before any access
// of the local starts.
class LiveRanges {
 public:
  // `clocks` is VectorClocks, or a class with the same End, place and num_streams.
  template <typename Clocks>
  LiveRanges(const Clocks& clocks, const Program& program)
      : num_streams_(clocks.num_streams()),
        last_(program.buffers.size() * num_streams_, 0),
        known_(program.buffers.size() * num_streams_, std::numeric_limits<int>::max()),
        first_instruction_(program.buffers.size(), -1),
        last_instruction_(program.buffers.size(), -1) {
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const int stream = program.instructions[i].stream;
      const absl::Span<const int> end = clocks.End(i);
      for (const Operand& operand : program.instructions[i].operands) {
        const BufferId buffer = operand.buffer;
        if (program.buffers[buffer].life != Life::kLocal) {
          continue;
        }
        if (first_instruction_[buffer] < 0) {
          first_instruction_[buffer] = i;
        }
        last_instruction_[buffer] = i;
        last_[Row(buffer) + stream] = clocks.place(i);
        for (int s = 0; s < num_streams_; ++s) {
          known_[Row(buffer) + s] = std::min(known_[Row(buffer) + s], end[s] - (s == stream));
        }
      }
    }
  }

  // Whether all accesses of `a` have ended when any access of `b` starts.
  bool Before(BufferId a, BufferId b) const {
    if (last_instruction_[a] >= first_instruction_[b]) {
      return false;
    }
    const int* last = &last_[Row(a)];
    const int* known = &known_[Row(b)];
    for (int s = 0; s < num_streams_; ++s) {
      if (last[s] > known[s]) {
        return false;
      }
    }
    return true;
  }

  int num_streams() const { return num_streams_; }
  // By stream, the place (VectorClocks::place) of its last instruction that accesses the buffer; 0: none.
  absl::Span<const int> Last(BufferId buffer) const {
    return absl::MakeConstSpan(last_).subspan(Row(buffer), num_streams_);
  }
  // By stream, how many of the stream's instructions are sure to have finished whichever access of the buffer
  // starts: the least over its accesses.
  absl::Span<const int> Known(BufferId buffer) const {
    return absl::MakeConstSpan(known_).subspan(Row(buffer), num_streams_);
  }

  // The first and the last instruction, in issue order, that access the buffer; -1: none.
  int first(BufferId buffer) const { return first_instruction_[buffer]; }
  int last(BufferId buffer) const { return last_instruction_[buffer]; }
  double Life(BufferId buffer) const { return last(buffer) - first(buffer) + 1; }

 private:
  size_t Row(BufferId buffer) const { return static_cast<size_t>(buffer) * num_streams_; }

  const int num_streams_;
  std::vector<int> last_;   // buffer x stream
  std::vector<int> known_;  // buffer x stream
  std::vector<int> first_instruction_;
  std::vector<int> last_instruction_;
};

}  // namespace tandem::schedules
