// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/check.h"
#include "schedules/passes/contributions.h"
#include "schedules/passes/passes.h"
#include "schedules/passes/spans.h"
#include "schedules/program/pass_operand.h"
#include "schedules/program/signature.h"
#include "schedules/program/unit_bytes.h"

namespace tandem::schedules {
namespace {

// With that of states a stream holds all Snapshots of a run (kAhead in check/together.h), so that the issuing
// thread waits for none: each begins behind the last optimizer step of its units.
constexpr int64_t kMostUnitSnapshots = 7;

// Units in the order in which the forward of one microbatch first uses them, then the others.
std::vector<UnitId> InOrderOfFirstUse(const Outline& outline) {
  std::vector<UnitPart> parts;
  for (const Node& node : outline.nodes) {
    parts.insert(parts.end(), node.forward.parameters.begin(), node.forward.parameters.end());
  }
  for (UnitId unit = 0; unit < static_cast<int>(outline.units.size()); ++unit) {
    parts.push_back({unit, 0});
  }
  return UnitsOf(parts);
}

class Sharder {
 public:
  Sharder(const Outline& outline, const BuildOptions& options, const StageFrame& frame, ProgramParts parts,
          Program& program)
      : outline_(outline),
        options_(options),
        frame_(frame),
        parts_(parts),
        program_(program),
        passes_(std::exchange(program.instructions, {})) {}

  void Run() {
    program_.instructions.reserve(2 * passes_.size() + 4 * outline_.units.size() + 8);
    LoadInputs();
    if (parts_.update) {
      UpdateStates();
      Update();
    }
    Passes();
    if (parts_.gradients) {
      Norm();
    }
    ReportLosses();
  }

 private:
  Instruction& Emit(Opcode opcode, int target, StreamId stream, CommunicatorId communicator = -1) {
    program_.instructions.push_back(
        {.opcode = opcode, .target = target, .stream = stream, .communicator = communicator});
    return program_.instructions.back();
  }

  void LoadInputs() {
    const auto reads_inputs = [&](const Instruction& pass) {
      return std::any_of(pass.operands.begin(), pass.operands.end(),
                         [&](const Operand& operand) { return operand.buffer == frame_.inputs; });
    };
    if (parts_.update || parts_.gradients || std::any_of(passes_.begin(), passes_.end(), reads_inputs)) {
      Emit(Opcode::kLoadInputs, -1, frame_.host_to_device).operands = MakeOperands(
          Opcode::kLoadInputs, {{Role::kSource, frame_.host_inputs}, {Role::kCopy, frame_.inputs}});
    }
  }

  void UpdateStates() {
    if (frame_.counts < 0) {
      return;
    }
    const BufferId scratch = AddBuffer(program_, "counters of all ranks", BufferKind::kScratch, -1, -1,
                                       Fixed(frame_.counts_bytes));
    std::vector<NamedOperand> named = {{Role::kOutcome, frame_.outcome}, {Role::kScratch, scratch}};
    std::vector<NamedOperand> saved;
    for (size_t state = 0; state < outline_.states.size(); ++state) {
      if (outline_.states[state].counter >= 0) {
        named.push_back({Role::kCounter, frame_.states[outline_.states[state].counter]});
        named.push_back({Role::kState, frame_.states[state]});
        saved.push_back({Role::kSource, frame_.states[state]});
        saved.push_back({Role::kCopy, frame_.host_states[state]});
      }
    }
    Emit(Opcode::kUpdateStates, -1, frame_.reduce, frame_.counts).operands =
        MakeOperands(Opcode::kUpdateStates, named);
    Snapshot(saved);
  }

  void Update() {
    std::vector<NamedOperand> copies;
    std::vector<NamedOperand> saved;
    const auto updated = static_cast<int64_t>(TrainedUnits(outline_).size());
    const size_t most_saved = 4 * ((updated + kMostUnitSnapshots - 1) / kMostUnitSnapshots);
    for (const UnitId id : InOrderOfFirstUse(outline_)) {
      const Unit& unit = outline_.units[id];
      const UnitFrame& frame = frame_.units[id];
      if (unit.frozen) {
        continue;
      }
      const int64_t scratch = options_.units[id].optimizer_scratch_bytes;
      const BufferId scratch_buffer =
          scratch == 0 ? -1
                       : AddBuffer(program_, absl::StrCat("scratch of optimizer ", unit.name),
                                   BufferKind::kScratch, id, -1, Fixed(scratch));
      Emit(Opcode::kOptimizerStep, id, frame_.compute).operands =
          MakeOperands(Opcode::kOptimizerStep, {{Role::kReduced, frame.gradients},
                                                {Role::kOutcome, frame_.outcome},
                                                {Role::kInputs, frame_.inputs},
                                                {Role::kWeights, frame.weights},
                                                {Role::kOptimizerState, frame.optimizer_state},
                                                {Role::kPublished, frame.published},
                                                {Role::kUpdateNorms, frame.update_norms},
                                                {Role::kScratch, scratch_buffer}});
      saved.insert(saved.end(), {{Role::kSource, frame.weights},
                                 {Role::kSource, frame.optimizer_state},
                                 {Role::kCopy, frame.host_weights},
                                 {Role::kCopy, frame.host_optimizer_state}});
      if (saved.size() >= most_saved) {
        Snapshot(std::exchange(saved, {}));
      }
      copies.push_back({Role::kSource, frame.update_norms});
      copies.push_back({Role::kCopy, frame.host_update_norms});
    }
    Snapshot(saved);
    Report(copies);
  }

  // On a stream of its own, beside what follows.
  void Snapshot(const std::vector<NamedOperand>& saved) {
    if (parts_.saves && !saved.empty()) {
      Emit(Opcode::kSnapshot, -1, frame_.save).operands = MakeOperands(Opcode::kSnapshot, saved);
    }
  }

  void Report(const std::vector<NamedOperand>& copies) {
    std::vector<Operand> operands = MakeOperands(Opcode::kReport, copies);
    if (!operands.empty()) {
      Emit(Opcode::kReport, -1, frame_.device_to_host).operands = std::move(operands);
    }
  }

  void Passes() {
    const std::vector<Span> spans = FindSpans(outline_, frame_, options_.hold, passes_);
    GatherOverOuter(spans);
    gathered_.assign(outline_.units.size(), -1);
    std::vector<int> gathers(outline_.units.size(), 0);
    Contributions contributions(outline_, options_, frame_, passes_, program_);
    size_t next = 0;
    for (int i = 0; i < static_cast<int>(passes_.size()); ++i) {
      for (; next < spans.size() && spans[next].first == i; ++next) {
        Gather(spans[next].unit, passes_[i].microbatch, ++gathers[spans[next].unit]);
      }
      const bool is_pass = IsNodePass(passes_[i].opcode);
      if (is_pass) {
        FillIn(passes_[i], contributions);
      }
      program_.instructions.push_back(std::move(passes_[i]));
      if (is_pass && parts_.gradients) {
        contributions.After(i);
      }
    }
  }

  // The operands on parameters and contributions.
  void FillIn(Instruction& pass, Contributions& contributions) {
    ListOperands(outline_.nodes[pass.target], pass.opcode, options_.recompute, parts_.gradients, operands_);
    for (size_t k = 0; k < operands_.size(); ++k) {
      if (operands_[k].role == Role::kParameters) {
        pass.operands[k].buffer = gathered_[operands_[k].id];
      } else if (operands_[k].role == Role::kParameterGradient) {
        pass.operands[k] = contributions.Write({operands_[k].id, operands_[k].part}, pass.microbatch);
      }
    }
  }

  void GatherOverOuter(const std::vector<Span>& spans) {
    outer_gathered_.assign(outline_.units.size(), -1);
    for (const Span& span : spans) {
      const UnitFrame& frame = frame_.units[span.unit];
      if (!frame.memory.gathers_outer || outer_gathered_[span.unit] >= 0) {
        continue;
      }
      const Unit& unit = outline_.units[span.unit];
      outer_gathered_[span.unit] =
          AddBuffer(program_, absl::StrCat(unit.name, " shard"), BufferKind::kOuterGathered, span.unit, -1,
                    Fixed(frame.memory.outer_gathered),
                    frame.memory.gathers ? std::vector<BufferPart>()
                                         : PartsOf(options_, outline_, span.unit, &UnitPrecision::compute));
      Emit(Opcode::kUnshardOuter, span.unit, frame_.outer, frame.outer_gather).operands =
          MakeOperands(Opcode::kUnshardOuter,
                       {{Role::kShard, frame.shard()}, {Role::kGathered, outer_gathered_[span.unit]}});
    }
  }

  void Gather(UnitId id, int microbatch, int number) {
    const Unit& unit = outline_.units[id];
    const UnitFrame& frame = frame_.units[id];
    const BufferId shard = outer_gathered_[id] >= 0 ? outer_gathered_[id] : frame.shard();
    if (!frame.memory.gathers) {
      gathered_[id] = shard;
      return;
    }
    gathered_[id] = AddBuffer(program_, absl::StrCat(unit.name, " parameters, gather ", number),
                              BufferKind::kGathered, id, -1, Fixed(frame.memory.gathered),
                              PartsOf(options_, outline_, id, &UnitPrecision::compute));
    Instruction& gather = Emit(Opcode::kUnshard, id, frame_.gather, frame.gather);
    gather.microbatch = frame.memory.gathers_once ? -1 : microbatch;
    gather.operands =
        MakeOperands(Opcode::kUnshard, {{Role::kShard, shard}, {Role::kGathered, gathered_[id]}});
  }

  void Norm() {
    std::vector<NamedOperand> named = {{Role::kInputs, frame_.inputs}, {Role::kOutcome, frame_.outcome}};
    for (const UnitFrame& unit : frame_.units) {
      named.push_back({Role::kNormTerms, unit.norm_terms});
    }
    Emit(Opcode::kGradientNorm, -1, frame_.reduce, frame_.norm).operands =
        MakeOperands(Opcode::kGradientNorm, named);
  }

  void ReportLosses() {
    std::vector<NamedOperand> copies;
    for (const ValueId loss : outline_.losses) {
      for (int microbatch = 0; microbatch < program_.num_microbatches; ++microbatch) {
        copies.push_back({Role::kSource, frame_.losses[loss], microbatch});
        copies.push_back({Role::kCopy, frame_.host_losses[loss], microbatch});
      }
    }
    if (parts_.gradients) {
      copies.push_back({Role::kSource, frame_.outcome});
      copies.push_back({Role::kCopy, frame_.host_outcome});
    }
    Report(copies);
  }

  const Outline& outline_;
  const BuildOptions& options_;
  const StageFrame& frame_;
  const ProgramParts parts_;
  Program& program_;
  std::vector<Instruction> passes_;
  std::vector<PassOperand> operands_;     // of the pass at hand
  std::vector<BufferId> gathered_;        // unit → what nodes read now
  std::vector<BufferId> outer_gathered_;  // unit
};

}  // namespace

void ShardUnits(const Outline& outline, const BuildOptions& options, const StageFrame& frame,
                ProgramParts parts, Program& program) {
  Sharder(outline, options, frame, parts, program).Run();
}

}  // namespace tandem::schedules
