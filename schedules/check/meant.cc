// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/meant.h"

#include <array>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "schedules/check/execution.h"
#include "schedules/check/first_difference.h"
#include "schedules/check/reference.h"
#include "schedules/check/symbols.h"
#include "schedules/check/violation.h"

namespace tandem::schedules {
namespace {

constexpr char kMeant[] = "meant";

// Gradients first: where they differ, the losses and norms that follow from the same mistake say less.
int Rank(BufferKind kind) {
  constexpr std::array kFirst = {BufferKind::kGradients,      BufferKind::kWeights,   BufferKind::kPublished,
                                 BufferKind::kOptimizerState, BufferKind::kNodeState, BufferKind::kLosses};
  for (size_t i = 0; i < kFirst.size(); ++i) {
    if (kFirst[i] == kind) {
      return static_cast<int>(i);
    }
  }
  return static_cast<int>(kFirst.size());
}

class MeantRule {
 public:
  MeantRule(const Outline& outline, const BuildOptions& options, const Program& program, Symbols& symbols,
            Reference& reference)
      : outline_(outline),
        program_(program),
        symbols_(symbols),
        reference_(reference),
        execution_(outline, options, program, symbols) {}

  absl::Status Run() {
    execution_.Run();
    if (absl::Status status = CompareBuffers(); !status.ok()) {
      return status;
    }
    return CompareSent();
  }

 private:
  absl::Status CompareBuffers() {
    BufferId different = -1;
    for (BufferId b = 0; b < static_cast<int>(program_.buffers.size()); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (buffer.life == Life::kLocal) {
        break;
      }
      if (DifferentPart(b) >= 0 &&
          (different < 0 || Rank(buffer.kind) < Rank(program_.buffers[different].kind))) {
        different = b;
      }
    }
    if (different < 0) {
      return absl::OkStatus();
    }
    const Buffer& buffer = program_.buffers[different];
    const int part = DifferentPart(different);
    const std::string of_part = buffer.parts.empty() || buffer.kind == BufferKind::kOptimizerState
                                    ? ""
                                    : absl::StrCat(", ", buffer.parts[part].name);
    return Violation(
        kMeant, program_,
        FirstDifference(outline_, execution_.cells(), symbols_, reference_,
                        execution_.cell(execution_.cells().Of(different, false).begin + part),
                        Expected(buffer, part),
                        absl::StrCat(ContentName(outline_, buffer.kind, buffer.subject), of_part)));
  }

  Symbol Expected(const Buffer& buffer, int part) {
    return reference_.Final(buffer.kind, buffer.subject, buffer.parts.empty() ? -1 : part,
                            static_cast<int>(buffer.parts.size()));
  }

  // -1: all are as expected.
  int DifferentPart(BufferId b) {
    const Cells::Range range = execution_.cells().Of(b, false);
    for (int cell = range.begin; cell < range.end; ++cell) {
      if (execution_.cell(cell) != Expected(program_.buffers[b], cell - range.begin)) {
        return cell - range.begin;
      }
    }
    return -1;
  }

  absl::Status CompareSent() {
    const auto name = [&](const auto& key) {
      const auto [value, gradient, microbatch] = key;
      return absl::StrCat(gradient ? "the gradient of " : "", outline_.values[value].name, " of microbatch ",
                          microbatch);
    };
    for (const auto& [key, symbol] : reference_.sent()) {
      const auto found = execution_.sent().find(key);
      if (found == execution_.sent().end()) {
        return Violation(kMeant, program_, absl::StrCat(name(key), " is not sent"));
      }
      if (found->second.size() > 1) {
        return Violation(kMeant, program_, absl::StrCat(name(key), " is sent more than once"));
      }
      if (found->second.front() != symbol) {
        return Violation(kMeant, program_,
                         FirstDifference(outline_, execution_.cells(), symbols_, reference_,
                                         found->second.front(), symbol, name(key)));
      }
    }
    for (const auto& [key, symbols] : execution_.sent()) {
      if (reference_.sent().count(key) == 0) {
        return Violation(kMeant, program_, absl::StrCat(name(key), " is sent and nobody is to have it"));
      }
    }
    return absl::OkStatus();
  }

  const Outline& outline_;
  const Program& program_;
  Symbols& symbols_;
  Reference& reference_;
  Execution execution_;
};

}  // namespace

absl::Status CheckMeant(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
  for (const Program* program : stage.All()) {
    Symbols symbols;
    Reference reference(outline, options, symbols);
    if (program == &stage.train || program == &stage.update) {
      reference.Update();
    }
    if (program == &stage.train || program == &stage.begin) {
      reference.Step();
    }
    if (program == &stage.validate) {
      reference.Validate();
    }
    if (absl::Status status = MeantRule(outline, options, *program, symbols, reference).Run(); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::schedules
