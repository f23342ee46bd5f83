// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "schedules/program/program.h"
#include "schedules/program/vector_clock.h"

namespace tandem::schedules {

// The part of a program's run, in issue order, during which a local on the device is in use. Memory waits and
// budgets count these bytes. Addresses are multiples of the alignment, so sizes are rounded up to it.
struct LocalLife {
  int first = -1;  // first and last instruction that touch it
  int last = -1;
  int64_t bytes = 0;
};

// By buffer. If bytes is 0, the buffer is not counted.
std::vector<LocalLife> LocalLives(const Program& program);

// Calls visit(buffer) once for each buffer of the instruction's operands.
template <typename Visit>
void ForEachBuffer(const Instruction& instruction, Visit visit) {
  const std::vector<Operand>& operands = instruction.operands;
  for (size_t k = 0; k < operands.size(); ++k) {
    bool before = false;
    for (size_t j = 0; j < k && !before; ++j) {
      before = operands[j].buffer == operands[k].buffer;
    }
    if (!before) {
      visit(operands[k].buffer);
    }
  }
}

// The locals that are alive when an instruction starts: those that it is the first to access, and every
// earlier one with an access that the instruction does not know to have ended, even if another stream knows
// it.
class LiveLocals {
 public:
  explicit LiveLocals(const Program& program)
      : program_(program),
        lives_(LocalLives(program)),
        num_streams_(program.streams.size()),
        last_accesses_(program.buffers.size() * num_streams_, -1),
        pending_(num_streams_),
        seen_(num_streams_, 0) {}

  // The bytes of the locals that instruction i is the first to access.
  int64_t Opens(int i) const {
    int64_t bytes = 0;
    ForEachBuffer(program_.instructions[i], [&](BufferId buffer) {
      if (lives_[buffer].first == i) {
        bytes += lives_[buffer].bytes;
      }
    });
    return bytes;
  }

  // The buffers whose last access has been issued, but which the next instruction on the stream does not know
  // to have ended. Ordered by their last access.
  const std::vector<BufferId>& Pending(const VectorClocks& clocks, int stream) {
    std::vector<BufferId>& pending = pending_[stream];
    pending.insert(pending.end(), closed_.begin() + static_cast<std::ptrdiff_t>(seen_[stream]),
                   closed_.end());
    seen_[stream] = closed_.size();
    pending.erase(
        std::remove_if(pending.begin(), pending.end(),
                       [&](BufferId buffer) { return HasEnded(clocks, buffer, clocks.Now(stream)); }),
        pending.end());
    return pending;
  }

  bool HasEnded(const VectorClocks& clocks, BufferId buffer, absl::Span<const int> known) const {
    for (const int access : LastAccesses(buffer)) {
      if (access >= 0 && !clocks.Knows(known, access)) {
        return false;
      }
    }
    return true;
  }

  // By stream, the last access of the buffer that has been issued; -1: none.
  absl::Span<const int> LastAccesses(BufferId buffer) const {
    return absl::MakeConstSpan(last_accesses_).subspan(buffer * num_streams_, num_streams_);
  }

  int64_t bytes(BufferId buffer) const { return lives_[buffer].bytes; }
  // The bytes alive when the next instruction starts: `opens` (Opens), the buffers in use whose last access
  // is yet to be issued, and `pending` (Pending).
  int64_t Alive(int64_t opens, const std::vector<BufferId>& pending) const {
    int64_t alive = opens + open_bytes_;
    for (const BufferId buffer : pending) {
      alive += bytes(buffer);
    }
    return alive;
  }

  void Issue(int i) {
    const Instruction& instruction = program_.instructions[i];
    ForEachBuffer(instruction, [&](BufferId buffer) {
      const LocalLife& life = lives_[buffer];
      if (life.bytes == 0) {
        return;
      }
      last_accesses_[buffer * num_streams_ + instruction.stream] = i;
      if (life.first == i) {
        open_bytes_ += life.bytes;
      }
      if (life.last == i) {
        open_bytes_ -= life.bytes;
        closed_.push_back(buffer);
      }
    });
  }

 private:
  const Program& program_;
  const std::vector<LocalLife> lives_;
  const size_t num_streams_;
  std::vector<int> last_accesses_;              // buffer x stream
  std::vector<std::vector<BufferId>> pending_;  // by stream
  std::vector<size_t> seen_;                    // by stream: how many of closed_ it has looked at
  std::vector<BufferId> closed_;                // in the order of their last accesses
  int64_t open_bytes_ = 0;                      // bytes of the buffers with accesses to come
};

// The most bytes of a program's locals that are alive at once. LiveLocals says what is alive when an
// instruction starts. Memory waits keep this number within the budget. Sizes are rounded up to the alignment.
// Buffers in pinned host memory do not count. Requires waits that point to lower positions.
int64_t MostBytesAlive(const Program& program);

}  // namespace tandem::schedules
