#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "platform/check.h"
#include "schedules/passes/local_lives.h"
#include "schedules/passes/passes.h"

namespace tandem::schedules {
namespace {

// The latest accesses of each part of each buffer (of a ring: of each element), by instruction.
class AccessHistory {
 public:
  explicit AccessHistory(const Program& program) : num_streams_(program.streams.size()) {
    for (const Buffer& buffer : program.buffers) {
      first_cell_.push_back(num_cells_);
      num_cells_ += CellsOf(buffer) * (buffer.life == Life::kRing ? 2 : 1);
    }
    writers_.assign(num_cells_, -1);
    readers_.assign(num_cells_ * num_streams_, -1);
  }

  // Calls visit(earlier) for accesses that conflict with the operand, all that others do not imply.
  template <typename Visit>
  void ForEachConflict(const Program& program, const Operand& operand, Visit visit) const {
    ForEachCell(program, operand, [&](size_t cell) {
      if (writers_[cell] >= 0) {
        visit(writers_[cell]);
      }
      if (operand.mode != Mode::kReads) {
        for (size_t s = 0; s < num_streams_; ++s) {
          if (readers_[cell * num_streams_ + s] >= 0) {
            visit(readers_[cell * num_streams_ + s]);
          }
        }
      }
    });
  }

  void Record(const Program& program, const Operand& operand, int stream, int instruction) {
    ForEachCell(program, operand, [&](size_t cell) {
      if (operand.mode == Mode::kReads) {
        readers_[cell * num_streams_ + stream] = instruction;
      } else {
        writers_[cell] = instruction;
        std::fill_n(readers_.begin() + cell * num_streams_, num_streams_, -1);
      }
    });
  }

 private:
  static size_t CellsOf(const Buffer& buffer) { return std::max<size_t>(1, buffer.parts.size()); }

  template <typename Visit>
  void ForEachCell(const Program& program, const Operand& operand, Visit visit) const {
    const size_t cells = CellsOf(program.buffers[operand.buffer]);
    const size_t first = first_cell_[operand.buffer] + (operand.former ? cells : 0);
    if (operand.part >= 0) {
      visit(first + operand.part);
      return;
    }
    for (size_t cell = first; cell < first + cells; ++cell) {
      visit(cell);
    }
  }

  const size_t num_streams_;
  size_t num_cells_ = 0;
  std::vector<size_t> first_cell_;  // buffer
  std::vector<int> writers_;        // cell
  std::vector<int> readers_;        // cell, stream
};

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

  // Those whose last access is issued, and not known to have ended to who has `known`; oldest first.
  // `stream`: whose knowledge it is; it only grows.
  const std::vector<BufferId>& Pending(const VectorClocks& clocks, int stream, absl::Span<const int> known) {
    std::vector<BufferId>& pending = pending_[stream];
    pending.insert(pending.end(), closed_.begin() + static_cast<std::ptrdiff_t>(seen_[stream]),
                   closed_.end());
    seen_[stream] = closed_.size();
    pending.erase(std::remove_if(pending.begin(), pending.end(),
                                 [&](BufferId buffer) { return HasEnded(clocks, buffer, known); }),
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
  int64_t open_bytes() const { return open_bytes_; }  // of those with accesses to come

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
  int64_t open_bytes_ = 0;
};

class WaitInserter {
 public:
  WaitInserter(int64_t budget, Program& program)
      : budget_(budget),
        program_(program),
        num_streams_(static_cast<int>(program.streams.size())),
        clocks_(num_streams_),
        history_(program),
        live_(program) {}

  VectorClocks Run() {
    for (int i = 0; i < static_cast<int>(program_.instructions.size()); ++i) {
      Instruction& instruction = program_.instructions[i];
      WaitForConflicts(instruction);
      WaitForMemory(i, instruction);
      std::sort(instruction.waits.begin(), instruction.waits.end(),
                [](const Wait& a, const Wait& b) { return a.instruction < b.instruction; });
      clocks_.Issue(instruction.stream);
      if (instruction.opcode == Opcode::kHostWait) {  // the issuing thread itself waited
        for (int stream = 0; stream < num_streams_; ++stream) {
          clocks_.Wait(stream, i);
        }
      }
      for (const Operand& operand : instruction.operands) {
        history_.Record(program_, operand, instruction.stream, i);
      }
      live_.Issue(i);
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

  void WaitForConflicts(Instruction& instruction) {
    const int stream = instruction.stream;
    needed_.assign(num_streams_, -1);
    const auto need = [&](int earlier) {
      if (!clocks_.Knows(clocks_.Now(stream), earlier)) {
        int& latest = needed_[clocks_.stream(earlier)];
        latest = std::max(latest, earlier);
      }
    };
    for (const Wait& wait : instruction.waits) {
      need(wait.instruction);
    }
    for (const Operand& operand : instruction.operands) {
      history_.ForEachConflict(program_, operand, need);
    }
    instruction.waits.clear();
    Apply(stream, needed_, [&](int wait) { instruction.waits.push_back({wait}); });
  }

  void WaitForMemory(int i, Instruction& instruction) {
    const int stream = instruction.stream;
    const int64_t opens = live_.Opens(i);
    if (opens == 0) {
      return;
    }
    const std::vector<BufferId>& pending = live_.Pending(clocks_, stream, clocks_.Now(stream));
    int64_t alive = opens + live_.open_bytes();
    for (const BufferId buffer : pending) {
      alive += live_.bytes(buffer);
    }
    if (alive <= budget_) {
      return;
    }
    known_.assign(clocks_.Now(stream).begin(), clocks_.Now(stream).end());
    needed_.assign(num_streams_, -1);
    ended_.assign(pending.size(), false);
    for (size_t k = 0; k < pending.size() && alive > budget_; ++k) {
      if (ended_[k]) {
        continue;
      }
      for (const int access : live_.LastAccesses(pending[k])) {
        if (access >= 0 && !clocks_.Knows(known_, access)) {
          needed_[clocks_.stream(access)] = std::max(needed_[clocks_.stream(access)], access);
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
      instruction.waits.push_back({wait, 0});
      memory_.push_back(wait);
    });
    CountFreed(pending, instruction);
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
  Program& program_;
  const int num_streams_;
  VectorClocks clocks_;
  AccessHistory history_;
  LiveLocals live_;
  std::vector<int> needed_;  // stream
  std::vector<int> known_;   // stream
  std::vector<bool> ended_;
  std::vector<int> memory_;  // memory waits of the instruction
};

}  // namespace

VectorClocks InsertWaits(int64_t budget, Program& program) { return WaitInserter(budget, program).Run(); }

}  // namespace tandem::schedules
