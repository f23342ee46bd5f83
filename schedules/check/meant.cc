// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "schedules/check/execution.h"
#include "schedules/check/first_difference.h"
#include "schedules/check/reference.h"
#include "schedules/check/rules.h"
#include "schedules/check/symbols.h"
#include "schedules/check/together.h"
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

// The programs of one name of all stages.
class MeantRule {
 public:
  MeantRule(const Outline& undivided, absl::Span<const Stage> stages, std::vector<const Program*> programs,
            Symbols& symbols, Reference& reference)
      : undivided_(undivided),
        stages_(stages),
        programs_(std::move(programs)),
        symbols_(symbols),
        reference_(reference) {
    int first_garbage = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      executions_.emplace_back(stages[s], *programs_[s], symbols, first_garbage);
      first_garbage += executions_.back().cells().size();
    }
  }

  absl::Status Run() {
    TANDEM_RETURN_IF_ERROR(Execute());
    return CompareBuffers();
  }

 private:
  // Several stages in an order of rule 4; one in issue order.
  absl::Status Execute() {
    if (stages_.size() == 1) {
      const Outline& outline = stages_.front().outline;
      if (IsDivided(outline)) {
        return Violation(kMeant, *programs_.front(),
                         absl::StrCat("is stage ", outline.stage, "'s alone; check all stages together"));
      }
      for (const Instruction& instruction : programs_.front()->instructions) {
        Execute(0, instruction);
      }
      return absl::OkStatus();
    }
    std::vector<const Outline*> outlines;
    for (const Stage& stage : stages_) {
      outlines.push_back(&stage.outline);
    }
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Ended> order, RunTogether(outlines, programs_));
    for (const Ended ended : order) {
      Execute(ended.stage, programs_[ended.stage]->instructions[ended.instruction]);
    }
    return absl::OkStatus();
  }

  void Execute(int stage, const Instruction& in) {
    switch (in.opcode) {
      case Opcode::kSend:
        carried_ = executions_[stage].Sent(in);
        break;
      case Opcode::kReceive:
        executions_[stage].Receive(in, carried_);
        break;
      case Opcode::kGradientNorm:
        norms_.push_back(&in);
        if (norms_.size() == stages_.size()) {
          EndNorms();
        }
        break;
      default:
        executions_[stage].Run(in);
    }
  }

  // One sum over all stages, whichever stage has a unit.
  void EndNorms() {
    std::vector<std::pair<UnitId, Symbol>> terms;
    std::vector<Symbol> inputs;
    for (size_t s = 0; s < stages_.size(); ++s) {
      executions_[s].ReadNorm(*norms_[s], terms, inputs);
    }
    std::stable_sort(terms.begin(), terms.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Symbol> reads;
    for (const auto& [unit, symbol] : terms) {
      reads.push_back(symbol);
    }
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    reads.insert(reads.end(), inputs.begin(), inputs.end());
    const Symbol outcome = symbols_.Of(SymbolOp::kNorm, 0, 0, 0, absl::MakeConstSpan(reads));
    for (size_t s = 0; s < stages_.size(); ++s) {
      executions_[s].EndNorm(*norms_[s], outcome);
    }
    norms_.clear();
  }

  absl::Status CompareBuffers() {
    int stage = 0;
    const Buffer* different = nullptr;
    int part = -1;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<Buffer>& buffers = programs_[s]->buffers;
      for (BufferId b = 0; b < static_cast<int>(buffers.size()) && buffers[b].life != Life::kLocal; ++b) {
        const int of_buffer = DifferentPart(static_cast<int>(s), b);
        if (of_buffer >= 0 && (different == nullptr || Rank(buffers[b].kind) < Rank(different->kind))) {
          stage = static_cast<int>(s);
          different = &buffers[b];
          part = of_buffer;
        }
      }
    }
    if (different == nullptr) {
      return absl::OkStatus();
    }
    const Execution& execution = executions_[stage];
    const std::string of_part = different->parts.empty() || different->kind == BufferKind::kOptimizerState
                                    ? ""
                                    : absl::StrCat(", ", different->parts[part].name);
    const auto buffer = static_cast<BufferId>(different - programs_[stage]->buffers.data());
    return Violation(
        kMeant, *programs_[stage],
        absl::StrCat(
            stages_.size() > 1 ? absl::StrCat("stage ", stages_[stage].outline.stage, ": ") : "",
            FirstDifference(
                undivided_, [this](int garbage) { return NameOf(garbage); }, symbols_, reference_,
                execution.cell(execution.cells().Of(buffer, false).begin + part),
                Expected(stage, *different, part),
                absl::StrCat(ContentName(undivided_, different->kind, execution.SubjectOf(*different)),
                             of_part))));
  }

  std::string NameOf(int garbage) const {
    for (const Execution& execution : executions_) {
      if (garbage < execution.cells().size()) {
        return execution.cells().Name(garbage);
      }
      garbage -= execution.cells().size();
    }
    return "?";
  }

  Symbol Expected(int stage, const Buffer& buffer, int part) {
    return reference_.Final(buffer.kind, executions_[stage].SubjectOf(buffer),
                            buffer.parts.empty() ? -1 : part, static_cast<int>(buffer.parts.size()));
  }

  // -1: all are as expected.
  int DifferentPart(int stage, BufferId b) {
    const Execution& execution = executions_[stage];
    const Cells::Range range = execution.cells().Of(b, false);
    for (int cell = range.begin; cell < range.end; ++cell) {
      if (execution.cell(cell) != Expected(stage, programs_[stage]->buffers[b], cell - range.begin)) {
        return cell - range.begin;
      }
    }
    return -1;
  }

  const Outline& undivided_;
  const absl::Span<const Stage> stages_;
  const std::vector<const Program*> programs_;
  Symbols& symbols_;
  Reference& reference_;
  std::vector<Execution> executions_;
  Symbol carried_ = -1;                    // by the send that ended last
  std::vector<const Instruction*> norms_;  // by stage: those that have come to it
};

}  // namespace

absl::Status CheckMeant(const Outline& undivided, const BuildOptions& options, absl::Span<const Stage> stages,
                        absl::Span<const StagePrograms* const> programs) {
  for (const auto member : {&StagePrograms::train, &StagePrograms::begin, &StagePrograms::update,
                            &StagePrograms::validate, &StagePrograms::train_save}) {
    std::vector<const Program*> of_name;
    for (const StagePrograms* stage : programs) {
      of_name.push_back(&(stage->*member));
    }
    if (std::all_of(of_name.begin(), of_name.end(),
                    [](const Program* program) { return program->instructions.empty(); })) {
      continue;
    }
    Symbols symbols;
    Reference reference(undivided, options, symbols);
    const bool saves = member == &StagePrograms::train_save;
    if (member == &StagePrograms::train || member == &StagePrograms::update || saves) {
      reference.Update();
    }
    if (saves) {
      reference.Save();
    }
    if (member == &StagePrograms::train || member == &StagePrograms::begin || saves) {
      reference.Step();
    }
    if (member == &StagePrograms::validate) {
      reference.Validate();
    }
    TANDEM_RETURN_IF_ERROR(MeantRule(undivided, stages, std::move(of_name), symbols, reference).Run());
  }
  return absl::OkStatus();
}

absl::Status CheckMeant(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
  const Stage only = OnlyStage(outline);
  const StagePrograms* const programs = &stage;
  return CheckMeant(outline, options, absl::MakeConstSpan(&only, 1), absl::MakeConstSpan(&programs, 1));
}

}  // namespace tandem::schedules
