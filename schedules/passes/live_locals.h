// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "schedules/program/program.h"
#include "schedules/program/vector_clock.h"

namespace tandem::schedules {

// A program's locals on the device, in issue order: what the memory waits and budgets count. Addresses are
// multiples of the alignment, so that is what a buffer costs.
struct LocalLife {
  int first = -1;  // instructions that touch it
  int last = -1;
  int64_t bytes = 0;
};

// Per buffer; bytes 0: it is not counted.
std::vector<LocalLife> LocalLives(const Program& program);

// Calls visit(buffer) for each buffer of the instruction's operands, once.
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

// Which locals are alive for an instruction: those that it opens, and every earlier one with an access that
// it does not know to have ended, whatever other streams know.
class LiveLocals {
 public:
  explicit LiveLocals(const Program& program)
      : program_(program),
        lives_(LocalLives(program)),
        num_streams_(program.streams.size()),
        last_accesses_(program.buffers.size() * num_streams_, -1),
        pending_(num_streams_),
        seen_(num_streams_, 0) {}

  // Bytes that instruction i is the first to touch.
  int64_t Opens(int i) const {
    int64_t bytes = 0;
    ForEachBuffer(program_.instructions[i], [&](BufferId buffer) {
      if (lives_[buffer].first == i) {
        bytes += lives_[buffer].bytes;
      }
    });
    return bytes;
  }

  // Those whose last access is issued, while the stream does not know yet that it has ended; oldest first.
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

  // Per stream, -1: none.
  absl::Span<const int> LastAccesses(BufferId buffer) const {
    return absl::MakeConstSpan(last_accesses_).subspan(buffer * num_streams_, num_streams_);
  }

  int64_t bytes(BufferId buffer) const { return lives_[buffer].bytes; }
  // With so many bytes opened, what has accesses to come, and what is pending.
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
  std::vector<int> last_accesses_;              // buffer, stream
  std::vector<std::vector<BufferId>> pending_;  // stream
  std::vector<size_t> seen_;                    // stream → how many of closed_
  std::vector<BufferId> closed_;                // in order of their last accesses
  int64_t open_bytes_ = 0;                      // of those with accesses to come
};

// Bytes of a program's locals that are alive at once, at most: where an instruction first touches
// buffers, these and every earlier buffer with an access that it does not know to have ended, whatever other
// streams know. This is what memory waits keep within the budget; the arena holds it and gaps between
// addresses. Sizes are rounded up to the alignment; buffers in pinned host memory do not count. Requires
// waits that point to lower positions.
int64_t MostBytesAlive(const Program& program);

}  // namespace tandem::schedules
