// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "schedules/check/rules.h"
#include "schedules/check/violation.h"
#include "schedules/program/cells.h"

namespace tandem::schedules {
namespace {

class OrderedRule {
 public:
  OrderedRule(const Outline& outline, const Program& program, const RunClocks& clocks)
      : outline_(outline),
        program_(program),
        clocks_(clocks),
        cells_(program),
        num_streams_(clocks.num_streams()),
        last_(static_cast<size_t>(cells_.size()) * num_streams_ * 2, 0) {}

  // What a former run of that program may have accessed.
  void Precede(const Program& former) {
    for (const Instruction& instruction : former.instructions) {
      const int stream = clocks_.StreamOfFormer(former.streams[instruction.stream]);
      for (Operand operand : instruction.operands) {
        const Life life = former.buffers[operand.buffer].life;
        if (life == Life::kLocal) {
          continue;
        }
        // Its elements change places, and its number is the same in every program.
        operand.former = life == Life::kRing && !operand.former;
        const Cells::Range range = cells_.Of(operand);
        for (int cell = range.begin; cell < range.end; ++cell) {
          Last(cell, stream, operand.mode != Mode::kReads) = 1;
        }
      }
    }
  }

  absl::Status Run() {
    for (int i = 0; i < static_cast<int>(program_.instructions.size()); ++i) {
      const Instruction& instruction = program_.instructions[i];
      for (const Operand& operand : instruction.operands) {
        const bool by_host = instruction.opcode != Opcode::kHostWait && operand.mode == Mode::kReads &&
                             program_.buffers[operand.buffer].kind == BufferKind::kSizes;
        TANDEM_RETURN_IF_ERROR(
            Access(i, operand, by_host ? clocks_.KnownByHost(i) : clocks_.End(i), by_host));
      }
    }
    return absl::OkStatus();
  }

 private:
  // The place of the last read or write (or add) of a cell on a stream; 0: none.
  int& Last(int cell, int stream, bool write) {
    return last_[(static_cast<size_t>(cell) * 2 + (write ? 1 : 0)) * num_streams_ + stream];
  }

  absl::Status Access(int i, const Operand& operand, absl::Span<const int> known, bool by_host) {
    const bool write = operand.mode != Mode::kReads;
    const int stream = program_.instructions[i].stream;
    const int place = clocks_.place(i);
    const Cells::Range range = cells_.Of(operand);
    for (int cell = range.begin; cell < range.end; ++cell) {
      for (int s = 0; s < num_streams_; ++s) {
        // End covers i itself. What it finds at its own place is another operand of its own.
        const int limit = s == stream && !by_host ? place - 1 : known[s];
        const int last = std::max(Last(cell, s, true), write ? Last(cell, s, false) : 0);
        if (last > limit) {
          return Unordered(i, cell, clocks_.At(s, last), by_host);
        }
      }
      Last(cell, stream, write) = place;
    }
    return absl::OkStatus();
  }

  absl::Status Unordered(int i, int cell, int other, bool by_host) const {
    const std::string name = cells_.Name(cell);
    const std::string accessor = other < 0 ? "the former run" : Describe(outline_, program_, other);
    if (by_host) {
      return Violation(
          "ordered", outline_, program_, i,
          absl::StrCat("is issued by what ", name, " says, and the issuing thread has not waited for ",
                       accessor, ", which writes it"));
    }
    if (other == i) {
      return Violation("ordered", outline_, program_, i,
                       absl::StrCat("touches ", name, " by two operands, one of which changes it"));
    }
    return Violation("ordered", outline_, program_, i,
                     absl::StrCat("and ", accessor, " both touch ", name,
                                  ", and nothing makes the first wait for the second"));
  }

  const Outline& outline_;
  const Program& program_;
  const RunClocks& clocks_;
  const Cells cells_;
  const int num_streams_;
  std::vector<int> last_;  // cell x (read, write) x stream
};

}  // namespace

absl::Status CheckOrdered(const Outline& outline, const Program& program, const RunClocks& clocks,
                          absl::Span<const Program* const> stage) {
  OrderedRule rule(outline, program, clocks);
  for (const Program* former : stage) {
    rule.Precede(*former);
  }
  return rule.Run();
}

}  // namespace tandem::schedules
