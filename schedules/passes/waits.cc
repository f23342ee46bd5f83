// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "platform/check.h"
#include "schedules/passes/live_locals.h"
#include "schedules/passes/passes.h"
#include "schedules/program/cells.h"

namespace tandem::schedules {
namespace {

// The latest accesses of each cell, by instruction.
class AccessHistory {
 public:
  explicit AccessHistory(const Program& program)
      : cells_(program),
        num_streams_(program.streams.size()),
        writers_(cells_.size(), -1),
        readers_(cells_.size() * num_streams_, -1) {}

  // Calls visit(earlier) for accesses that conflict with the operand, all that others do not imply.
  template <typename Visit>
  void ForEachConflict(const Operand& operand, Visit visit) const {
    const Cells::Range range = cells_.Of(operand);
    for (int cell = range.begin; cell < range.end; ++cell) {
      if (writers_[cell] >= 0) {
        visit(writers_[cell]);
      }
      for (size_t s = 0; s < num_streams_ && operand.mode != Mode::kReads; ++s) {
        if (readers_[cell * num_streams_ + s] >= 0) {
          visit(readers_[cell * num_streams_ + s]);
        }
      }
    }
  }

  void Record(const Operand& operand, int stream, int instruction) {
    const Cells::Range range = cells_.Of(operand);
    for (int cell = range.begin; cell < range.end; ++cell) {
      if (operand.mode == Mode::kReads) {
        readers_[cell * num_streams_ + stream] = instruction;
      } else {
        writers_[cell] = instruction;
        std::fill_n(readers_.begin() + cell * num_streams_, num_streams_, -1);
      }
    }
  }

 private:
  const Cells cells_;
  const size_t num_streams_;
  std::vector<int> writers_;  // cell
  std::vector<int> readers_;  // cell, stream
};

class WaitInserter {
 public:
  WaitInserter(int64_t budget, const std::vector<BufferId>& before, Program& program)
      : budget_(budget),
        before_(before),
        program_(program),
        num_streams_(static_cast<int>(program.streams.size())),
        clocks_(num_streams_),
        history_(program),
        live_(program),
        newest_exchanges_(num_streams_, static_cast<int>(program.instructions.size())) {}

  VectorClocks Run() {
    for (int i = 0; i < static_cast<int>(program_.instructions.size()); ++i) {
      const Instruction& instruction = program_.instructions[i];
      const bool in_segment =
          instruction.segment >= 0 && i > 0 && program_.instructions[i - 1].segment == instruction.segment;
      if (!in_segment) {
        waiter_ = i;
        TakeWaits(instruction.stream);
      }
      WaitForConflicts(instruction);
      WaitForMemory(i, instruction);
      clocks_.Issue(instruction);
      if (SegmentEnd(program_, i) == i + 1) {
        TidyWaits();
      }
      for (const Operand& operand : instruction.operands) {
        history_.Record(operand, instruction.stream, i);
      }
      live_.Issue(i);
      if (instruction.opcode == Opcode::kSend || instruction.opcode == Opcode::kReceive) {
        newest_exchanges_[instruction.stream] = i;
      }
    }
    return std::move(clocks_);
  }

 private:
  // Keeps of `needed` (per stream, the latest instruction or -1) what no other of them implies, and waits for
  // it.
  template <typename Keep>
  void Apply(int stream, const std::vector<int>& needed, Keep keep) {
    for (int s = 0; s < num_streams_; ++s) {
      const int wait = needed[s];
      if (wait < 0) {
        continue;
      }
      const bool implied = std::any_of(needed.begin(), needed.end(), [&](int other) {
        return other >= 0 && other != wait && clocks_.Knows(clocks_.End(other), wait);
      });
      if (!implied) {
        keep(wait);
      }
    }
    for (const int wait : needed) {
      if (wait >= 0) {
        clocks_.Wait(stream, wait);
      }
    }
  }

  // The waits that the instruction has come with are needed.
  void TakeWaits(int stream) {
    needed_.assign(num_streams_, -1);
    for (const Wait& wait : std::exchange(program_.instructions[waiter_].waits, {})) {
      Need(stream, wait.instruction);
    }
  }

  void Need(int stream, int earlier) {
    if (!clocks_.Knows(clocks_.Now(stream), earlier)) {
      int& latest = needed_[clocks_.stream(earlier)];
      latest = std::max(latest, SegmentEnd(program_, earlier) - 1);
    }
  }

  // The waits of a segment's instructions are its first's.
  void WaitForConflicts(const Instruction& instruction) {
    const int stream = instruction.stream;
    const auto need = [&](int earlier) { Need(stream, earlier); };
    for (const Operand& operand : instruction.operands) {
      history_.ForEachConflict(operand, need);
      const BufferId before = before_.empty() ? -1 : before_[operand.buffer];
      for (int s = 0; before >= 0 && s < num_streams_; ++s) {
        if (const int access = live_.LastAccesses(before)[s]; access >= 0) {
          need(access);
        }
      }
    }
    Apply(stream, needed_, [&](int wait) { program_.instructions[waiter_].waits.push_back({wait}); });
    needed_.assign(num_streams_, -1);
  }

  // In order. Of a segment, whose instructions have added them one after the other, each once, and none that
  // another one implies, but for those that free memory.
  void TidyWaits() {
    std::vector<Wait>& waits = program_.instructions[waiter_].waits;
    std::sort(waits.begin(), waits.end(),
              [](const Wait& a, const Wait& b) { return a.instruction < b.instruction; });
    if (program_.instructions[waiter_].segment < 0) {
      return;
    }
    for (size_t w = 1; w < waits.size();) {
      if (waits[w].instruction == waits[w - 1].instruction) {
        waits[w - 1].frees += waits[w].frees;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      } else {
        ++w;
      }
    }
    std::erase_if(waits, [&](const Wait& wait) {
      return wait.frees == 0 && std::any_of(waits.begin(), waits.end(), [&](const Wait& other) {
               return other.instruction != wait.instruction &&
                      clocks_.Knows(clocks_.End(other.instruction), wait.instruction);
             });
    });
  }

  void WaitForMemory(int i, const Instruction& instruction) {
    const int stream = instruction.stream;
    const int64_t opens = live_.Opens(i);
    if (opens == 0) {
      return;
    }
    const std::vector<BufferId>& pending = live_.Pending(clocks_, stream);
    int64_t alive = live_.Alive(opens, pending);
    if (alive <= budget_) {
      return;
    }
    known_.assign(clocks_.Now(stream).begin(), clocks_.Now(stream).end());
    ended_.assign(pending.size(), false);
    for (size_t k = 0; k < pending.size() && alive > budget_; ++k) {
      if (ended_[k] || HangsOnPeer(pending[k])) {
        continue;
      }
      for (const int access : live_.LastAccesses(pending[k])) {
        if (access >= 0 && !clocks_.Knows(known_, access)) {
          Need(stream, access);
          for (int s = 0; s < num_streams_; ++s) {
            known_[s] = std::max(known_[s], clocks_.End(access)[s]);
          }
        }
      }
      for (size_t j = k; j < pending.size(); ++j) {  // it may have known of others, too
        if (!ended_[j] && live_.HasEnded(clocks_, pending[j], known_)) {
          ended_[j] = true;
          alive -= live_.bytes(pending[j]);
        }
      }
    }
    TANDEM_CHECK(alive <= budget_, "the budget holds what the program needs at least");
    Apply(stream, needed_, [&](int wait) {
      program_.instructions[waiter_].waits.push_back({wait, 0});
      memory_.push_back(wait);
    });
    needed_.assign(num_streams_, -1);
    CountFreed(pending, program_.instructions[waiter_]);
  }

  // The newest send or receive of a stream ends when a peer has come as far, and the peer may itself wait for
  // memory until this stage has gone on. By the time the next one is issued, it has.
  bool HangsOnPeer(BufferId buffer) const {
    for (const int access : live_.LastAccesses(buffer)) {
      if (access >= 0 && access >= newest_exchanges_[clocks_.stream(access)] &&
          !clocks_.Knows(known_, access)) {
        return true;
      }
    }
    return false;
  }

  // A buffer is freed by the first memory wait that knows all of its accesses to have ended; by all of them
  // together, where none does.
  void CountFreed(const std::vector<BufferId>& pending, Instruction& instruction) {
    for (size_t j = 0; j < pending.size(); ++j) {
      if (!ended_[j]) {
        continue;
      }
      const auto alone = std::find_if(memory_.begin(), memory_.end(), [&](int wait) {
        return live_.HasEnded(clocks_, pending[j], clocks_.End(wait));
      });
      for (Wait& wait : instruction.waits) {
        const bool frees = alone != memory_.end()
                               ? wait.instruction == *alone
                               : std::find(memory_.begin(), memory_.end(), wait.instruction) != memory_.end();
        wait.frees += frees ? live_.bytes(pending[j]) : 0;
      }
    }
    memory_.clear();
  }

  const int64_t budget_;
  const std::vector<BufferId>& before_;
  Program& program_;
  const int num_streams_;
  VectorClocks clocks_;
  AccessHistory history_;
  LiveLocals live_;
  int waiter_ = 0;           // the instruction that waits: the segment's first
  std::vector<int> needed_;  // stream
  std::vector<int> known_;   // stream
  std::vector<bool> ended_;
  std::vector<int> memory_;            // memory waits of the instruction
  std::vector<int> newest_exchanges_;  // stream; as many as instructions: it has none
};

}  // namespace

VectorClocks InsertWaits(int64_t budget, const std::vector<BufferId>& before, Program& program) {
  return WaitInserter(budget, before, program).Run();
}

}  // namespace tandem::schedules
