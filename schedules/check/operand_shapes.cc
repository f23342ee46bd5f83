// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/operand_shapes.h"

#include <algorithm>

#include "platform/check.h"
#include "schedules/program/pass_operand.h"

namespace tandem::schedules {
namespace {

constexpr uint32_t kRead = 1U << static_cast<int>(Mode::kReads);
constexpr uint32_t kWrite = 1U << static_cast<int>(Mode::kWrites);
constexpr uint32_t kAdd = 1U << static_cast<int>(Mode::kAdds);

uint64_t Kinds(std::initializer_list<BufferKind> kinds) {
  uint64_t bits = 0;
  for (const BufferKind kind : kinds) {
    bits |= uint64_t{1} << static_cast<int>(kind);
  }
  return bits;
}

class Shapes {
 public:
  Shapes(const Outline& outline, const BuildOptions& options, const Instruction& instruction, bool validates,
         std::vector<OperandShape>& shapes)
      : outline_(outline),
        options_(options),
        instruction_(instruction),
        validates_(validates),
        shapes_(shapes) {
    shapes_.clear();
  }

  void List() {
    switch (instruction_.opcode) {
      case Opcode::kLoadInputs:
        Add({BufferKind::kHostInputs}, -1, kRead, options_.rings.inputs_bytes);
        Add({BufferKind::kInputs}, -1, kWrite, options_.rings.inputs_bytes);
        break;
      case Opcode::kLoadBatch:
        AddPart({BufferKind::kHostBatch}, instruction_.target, instruction_.microbatch, kRead);
        AddPart({BufferKind::kBatch}, instruction_.target, instruction_.microbatch, kWrite);
        break;
      case Opcode::kForward:
      case Opcode::kRecompute:
      case Opcode::kBackward:
      case Opcode::kBackwardInput:
      case Opcode::kBackwardWeight:
        AddPass();
        break;
      case Opcode::kSend:
        AddBoundary(kRead, outline_.sent, outline_.received);
        break;
      case Opcode::kReceive:
        AddBoundary(kWrite, outline_.received, outline_.sent);
        break;
      case Opcode::kHostWait:
        Add({BufferKind::kSizes}, instruction_.target, kRead,
            outline_.values[instruction_.target].bytes.bound);
        break;
      case Opcode::kGradientNorm:
        for (UnitId u = 0; u < static_cast<int>(outline_.units.size()); ++u) {
          if (!outline_.units[u].frozen) {
            Add({BufferKind::kNormTerms}, u, kRead, options_.units[u].norm_terms_bytes);
          }
        }
        Add({BufferKind::kInputs}, -1, kRead, options_.rings.inputs_bytes);
        Add({BufferKind::kOutcome}, -1, kWrite, options_.rings.outcome_bytes);
        break;
      case Opcode::kUpdateStates:
        AddUpdatedStates();
        break;
      case Opcode::kUnshard:
      case Opcode::kUnshardOuter:
      case Opcode::kZero:
      case Opcode::kRound:
      case Opcode::kAccumulate:
      case Opcode::kReduceGradients:
      case Opcode::kReduceOuter:
      case Opcode::kOptimizerStep:
        AddOfUnit(instruction_.target);
        break;
      case Opcode::kReport:
      case Opcode::kFill:
        break;
    }
  }

 private:
  void Add(std::initializer_list<BufferKind> kinds, int subject, uint32_t modes, int64_t bytes) {
    shapes_.push_back({.kinds = Kinds(kinds), .subject = subject, .modes = modes, .bytes = bytes});
  }

  void AddPart(std::initializer_list<BufferKind> kinds, int subject, int part, uint32_t modes) {
    shapes_.push_back({.kinds = Kinds(kinds), .subject = subject, .part = part, .modes = modes});
  }

  void AddValue(ValueId value, uint32_t modes) {
    const Value& declared = outline_.values[value];
    const bool is_loss =
        std::find(outline_.losses.begin(), outline_.losses.end(), value) != outline_.losses.end();
    if (value == outline_.batch) {
      Add({BufferKind::kBatch}, value, modes, declared.bytes.bound);
    } else if (is_loss) {
      Add({BufferKind::kLosses}, value, modes, declared.bytes.bound);
    } else {
      Add({declared.kind == ValueKind::kHost       ? BufferKind::kSizes
           : declared.kind == ValueKind::kAllToAll ? BufferKind::kAllToAll
                                                   : BufferKind::kActivation},
          value, modes, declared.bytes.bound);
    }
  }

  void AddGradient(ValueId value, uint32_t modes) {
    Add({BufferKind::kActivationGradient}, value, modes, outline_.values[value].gradient_bytes.bound);
  }

  void AddPass() {
    const Node& node = outline_.nodes[instruction_.target];
    std::vector<PassOperand> operands;
    ListOperands(node, instruction_.opcode, options_.recompute, !validates_, operands);
    for (const PassOperand& operand : operands) {
      const uint32_t mode = 1U << static_cast<int>(operand.mode);
      const uint32_t gradient_mode = mode == kRead ? kRead : kWrite | kAdd;
      switch (operand.what) {
        case PassOperand::What::kValue:
          AddValue(operand.id, mode);
          break;
        case PassOperand::What::kGradient:
          AddGradient(operand.id, gradient_mode);
          break;
        case PassOperand::What::kParameters:
          AddPart({ParametersOf(outline_.units[operand.id])}, operand.id, operand.part, kRead);
          break;
        case PassOperand::What::kParameterGradient:
          AddPart({BufferKind::kContribution, BufferKind::kCollected}, operand.id, operand.part,
                  gradient_mode);
          break;
        case PassOperand::What::kState:
          Add({BufferKind::kNodeState}, operand.id, mode, outline_.states[operand.id].bytes);
          break;
        case PassOperand::What::kCarriedState:
          Add({BufferKind::kNodeState}, operand.id, kWrite | kAdd, outline_.states[operand.id].bytes);
          break;
        case PassOperand::What::kInputs:
          Add({BufferKind::kInputs}, -1, kRead, options_.rings.inputs_bytes);
          break;
        case PassOperand::What::kScratch:
          Add({BufferKind::kScratch}, -1, kWrite, AccessOf(node, instruction_.opcode).scratch.bound);
          break;
      }
    }
  }

  // A value goes one way across a boundary, its gradient the other.
  void AddBoundary(uint32_t mode, const std::vector<Boundary>& values,
                   const std::vector<Boundary>& gradients) {
    const auto crosses = [&](const std::vector<Boundary>& boundaries) {
      return std::any_of(boundaries.begin(), boundaries.end(),
                         [&](const Boundary& boundary) { return boundary.value == instruction_.target; });
    };
    if (crosses(values)) {
      AddValue(instruction_.target, mode);
    } else if (crosses(gradients)) {
      AddGradient(instruction_.target, mode);
    } else {
      shapes_.push_back({});  // fits nothing
    }
  }

  void AddUpdatedStates() {
    Add({BufferKind::kOutcome}, -1, kRead, options_.rings.outcome_bytes);
    shapes_.back().former = true;
    int64_t counted = 0;
    for (StateId state = 0; state < static_cast<int>(outline_.states.size()); ++state) {
      const StateId counter = outline_.states[state].counter;
      if (counter >= 0) {
        Add({BufferKind::kNodeState}, counter, kAdd, outline_.states.at(counter).bytes);
        Add({BufferKind::kNodeState}, state, kAdd, outline_.states[state].bytes);
        counted += outline_.states[counter].bytes;
      }
    }
    Add({BufferKind::kScratch}, -1, kWrite, counted * options_.dense.inner * options_.dense.outer);
  }

  // What the optimizer leaves for gathers, or for nodes.
  static BufferKind UpdatedOf(const Unit& unit) {
    return IsPublished(unit) ? BufferKind::kPublished : BufferKind::kWeights;
  }
  // What nodes read the unit's parameters in.
  BufferKind ParametersOf(const Unit& unit) const {
    return GathersInner(options_, unit)   ? BufferKind::kGathered
           : GathersOuter(options_, unit) ? BufferKind::kOuterGathered
                                          : UpdatedOf(unit);
  }

  void AddOfUnit(UnitId u) {
    const Unit& unit = outline_.units[u];
    const UnitSizes& sizes = options_.units[u];
    const Strategy& strategy = PlacementOf(options_, unit);
    const UnitPrecision& p = unit.precision;
    const bool replicated = strategy.inner.optimizer == Placement::kReplicate;
    const bool accumulated = strategy.inner.gradients != Placement::kShard;
    const bool outer_sharded = strategy.outer.optimizer == Placement::kShard;
    // Elements of the whole unit, of what this rank reduces, and of what it updates.
    const int64_t all = sizes.shard_elements * AxesOf(options_, unit).inner;
    const int64_t reduced = replicated ? all : sizes.shard_elements;
    const int64_t updated = outer_sharded ? sizes.outer_shard_elements : reduced;
    const BufferKind published = UpdatedOf(unit);
    switch (instruction_.opcode) {
      case Opcode::kUnshard:
        Add({GathersOuter(options_, unit) ? BufferKind::kOuterGathered : published}, u, kRead,
            sizes.shard_elements * p.compute);
        Add({BufferKind::kGathered}, u, kWrite, all * p.compute);
        break;
      case Opcode::kUnshardOuter:
        Add({published}, u, kRead, updated * p.compute);
        Add({BufferKind::kOuterGathered}, u, kWrite, sizes.shard_elements * p.compute);
        break;
      case Opcode::kZero:
        Add({BufferKind::kContribution}, u, kWrite, 0);
        break;
      case Opcode::kRound:
        Add({BufferKind::kCollected}, u, kRead, 0);
        Add({BufferKind::kContribution}, u, kWrite, 0);
        break;
      case Opcode::kAccumulate:
        Add({BufferKind::kContribution}, u, kRead, all * p.transport);
        Add({BufferKind::kFullGradient}, u, kWrite | kAdd, all * p.main);
        break;
      case Opcode::kReduceGradients: {
        const int64_t bytes = all * (accumulated ? p.main : p.transport);
        Add({accumulated ? BufferKind::kFullGradient : BufferKind::kContribution}, u, kRead, bytes);
        if (HasInnerPeers(options_, unit)) {
          Add({BufferKind::kStaging}, u, kWrite, bytes);
        }
        Add({BufferKind::kGradients}, u, kWrite | kAdd, reduced * p.main);
        Add({BufferKind::kNormTerms}, u, kWrite, sizes.norm_terms_bytes);
        shapes_.back().optional = true;
        break;
      }
      case Opcode::kReduceOuter:
        Add({BufferKind::kGradients}, u, kAdd, reduced * p.main);
        Add({BufferKind::kStaging}, u, kWrite, reduced * p.main);
        Add({BufferKind::kNormTerms}, u, kWrite, sizes.norm_terms_bytes);
        break;
      case Opcode::kOptimizerStep:
        Add({BufferKind::kGradients}, u, kRead, reduced * p.main);
        Add({BufferKind::kOutcome}, -1, kRead, options_.rings.outcome_bytes);
        shapes_.back().former = true;
        Add({BufferKind::kInputs}, -1, kRead, options_.rings.inputs_bytes);
        Add({BufferKind::kWeights}, u, kAdd, updated * p.main);
        Add({BufferKind::kOptimizerState}, u, kAdd, 2 * updated * p.main);
        if (IsPublished(unit)) {
          Add({BufferKind::kPublished}, u, kWrite, updated * p.compute);
        }
        if (options_.parameter_norms) {
          Add({BufferKind::kUpdateNorms}, u, kWrite, sizes.update_norms_bytes);
        }
        if (sizes.optimizer_scratch_bytes > 0) {
          Add({BufferKind::kScratch}, -1, kWrite, sizes.optimizer_scratch_bytes);
        }
        break;
      default:
        TANDEM_CHECK(false, "every opcode of a unit has its shapes");
    }
  }

  const Outline& outline_;
  const BuildOptions& options_;
  const Instruction& instruction_;
  const bool validates_;
  std::vector<OperandShape>& shapes_;
};

}  // namespace

void ShapesOf(const Outline& outline, const BuildOptions& options, const Instruction& instruction,
              bool validates, std::vector<OperandShape>& shapes) {
  Shapes(outline, options, instruction, validates, shapes).List();
}

bool IsPublished(const Unit& unit) { return !unit.frozen && unit.precision.compute != unit.precision.main; }

}  // namespace tandem::schedules
