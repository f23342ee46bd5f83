// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/check/rules.h"
#include "schedules/check/violation.h"
#include "schedules/program/text.h"

namespace tandem::schedules {
namespace {

constexpr char kGraphed[] = "graphed";

class GraphedRule {
 public:
  GraphedRule(const Outline& outline, const BuildOptions& options, const Program& program)
      : outline_(outline), options_(options), program_(program) {}

  absl::Status Run() {
    const int count = static_cast<int>(program_.instructions.size());
    for (int i = 0; i < count; ++i) {
      if (const std::string wrong = InSegment(i); !wrong.empty()) {
        return Violation(kGraphed, outline_, program_, i, wrong);
      }
      for (const Wait& wait : program_.instructions[i].waits) {
        if (const std::string wrong = WaitsFor(wait.instruction); !wrong.empty()) {
          return Violation(kGraphed, outline_, program_, i, wrong);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  std::string Text(int i) const { return Describe(outline_, program_, i); }

  // What is wrong with instruction i as one of its segment; nothing if it is in none.
  std::string InSegment(int i) {
    const Instruction& in = program_.instructions[i];
    if (in.segment < 0) {
      return "";
    }
    if (!IsNodePass(in.opcode) || in.target >= static_cast<int>(options_.replayed.size()) ||
        !options_.replayed[in.target]) {
      return "is in a segment, but is not a pass of a node that is replayed";
    }
    if (in.communicator >= 0) {
      return "is in a segment, but communicates";
    }
    for (const Operand& operand : in.operands) {
      const Buffer& buffer = program_.buffers[operand.buffer];
      if (buffer.life == Life::kRing || IsHost(buffer.kind)) {
        return absl::StrCat("is in a segment and touches ", OperandName(program_, operand), ", which is ",
                            IsHost(buffer.kind) ? "on the host" : "elsewhere in the next run");
      }
    }
    const bool first = i == 0 || program_.instructions[i - 1].segment != in.segment;
    if (first) {
      return IsNew(in.segment) ? "" : "is in a segment that has ended before it";
    }
    const Instruction& before = program_.instructions[i - 1];
    if (before.stream != in.stream || before.microbatch != in.microbatch) {
      return absl::StrCat("is in the segment of ", Text(i - 1), ", of another stream or microbatch");
    }
    return in.waits.empty() ? "" : "waits, but is not the first of its segment";
  }

  std::string WaitsFor(int awaited) const {
    return SegmentEnd(program_, awaited) == awaited + 1
               ? ""
               : absl::StrCat("waits for ", Text(awaited), ", which is not the last of its segment");
  }

  bool IsNew(int segment) {
    if (segment >= static_cast<int>(seen_.size())) {
      seen_.resize(segment + 1, false);
    }
    const bool is_new = !seen_[segment];
    seen_[segment] = true;
    return is_new;
  }

  const Outline& outline_;
  const BuildOptions& options_;
  const Program& program_;
  std::vector<bool> seen_;  // by segment
};

}  // namespace

absl::Status CheckGraphed(const Outline& outline, const BuildOptions& options, const Program& program) {
  return GraphedRule(outline, options, program).Run();
}

}  // namespace tandem::schedules
