// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/operand_shapes.h"

#include <algorithm>

#include "platform/check.h"
#include "schedules/program/pass_operand.h"
#include "schedules/program/signature.h"
#include "schedules/program/unit_bytes.h"

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
    if (IsNodePass(instruction_.opcode)) {
      AddPass();
      return;
    }
    for (const OperandRow& row : SignatureOf(instruction_.opcode)) {
      role_ = row.role;
      modes_ = row.modes;
      former_ = row.former;
      if (InfoOf(instruction_.opcode).target == TargetKind::kUnit) {
        AddOfUnit(instruction_.target);
      } else {
        AddOther();
      }
    }
  }

 private:
  // The next operand, of the row at hand.
  void Add(std::initializer_list<BufferKind> kinds, int subject, int64_t bytes, int part = -1) {
    shapes_.push_back({.kinds = Kinds(kinds),
                       .role = role_,
                       .subject = subject,
                       .part = part,
                       .modes = modes_,
                       .former = former_,
                       .bytes = bytes});
  }

  void AddValue(ValueId value) {
    const Value& declared = outline_.values[value];
    const bool is_loss =
        std::find(outline_.losses.begin(), outline_.losses.end(), value) != outline_.losses.end();
    if (value == outline_.batch || is_loss) {
      const BufferKind ring = is_loss ? BufferKind::kLosses : BufferKind::kBatch;
      if (instruction_.segment >= 0) {
        Add({BufferKind::kActivation}, value,
            declared.bytes.bound);  // which a Copy copies from or to the ring
      } else {
        Add({ring}, value, declared.bytes.bound);
      }
    } else {
      Add({declared.kind == ValueKind::kHost       ? BufferKind::kSizes
           : declared.kind == ValueKind::kAllToAll ? BufferKind::kAllToAll
                                                   : BufferKind::kActivation},
          value, declared.bytes.bound);
    }
  }

  void AddGradient(ValueId value) {
    Add({BufferKind::kActivationGradient}, value, outline_.values[value].gradient_bytes.bound);
  }

  void AddPass() {
    const Node& node = outline_.nodes[instruction_.target];
    std::vector<PassOperand> operands;
    ListOperands(node, instruction_.opcode, options_.recompute, !validates_, operands);
    for (const PassOperand& operand : operands) {
      role_ = operand.role;
      modes_ = 1U << static_cast<int>(operand.mode);
      const bool later_adds =
          modes_ != kRead &&
          (role_ == Role::kGradient || role_ == Role::kParameterGradient || role_ == Role::kCarriedState);
      modes_ |= later_adds ? kWrite | kAdd : 0;
      switch (role_) {
        case Role::kValue:
          AddValue(operand.id);
          break;
        case Role::kGradient:
          AddGradient(operand.id);
          break;
        case Role::kParameters:
          Add({ParametersOf(outline_.units[operand.id])}, operand.id, 0, operand.part);
          break;
        case Role::kParameterGradient:
          Add({BufferKind::kContribution, BufferKind::kCollected}, operand.id, 0, operand.part);
          break;
        case Role::kState:
        case Role::kCarriedState:
          Add({BufferKind::kNodeState}, operand.id, outline_.states[operand.id].bytes);
          break;
        case Role::kInputs:
          Add({BufferKind::kInputs}, -1, options_.rings.inputs_bytes);
          break;
        default:
          Add({BufferKind::kScratch}, -1, AccessOf(node, instruction_.opcode).scratch.bound);
      }
    }
  }

  // Of an instruction whose target is no node and no unit.
  void AddOther() {
    const int target = instruction_.target;
    const bool batch = instruction_.opcode == Opcode::kLoadBatch;
    switch (role_) {
      case Role::kSource:
      case Role::kCopy:
        if (batch) {
          Add({role_ == Role::kSource ? BufferKind::kHostBatch : BufferKind::kBatch}, target, 0,
              instruction_.microbatch);
        } else if (instruction_.opcode == Opcode::kLoadInputs) {
          Add({role_ == Role::kSource ? BufferKind::kHostInputs : BufferKind::kInputs}, -1,
              options_.rings.inputs_bytes);
        }
        break;
      case Role::kValue:
      case Role::kGradient:
        AddExchanged(target);
        break;
      case Role::kNormTerms:
        for (const UnitId u : TrainedUnits(outline_)) {
          Add({BufferKind::kNormTerms}, u, options_.units[u].norm_terms_bytes);
        }
        break;
      case Role::kInputs:
        Add({BufferKind::kInputs}, -1, options_.rings.inputs_bytes);
        break;
      case Role::kOutcome:
        Add({BufferKind::kOutcome}, -1, options_.rings.outcome_bytes);
        break;
      case Role::kCounter:
      case Role::kState:
        for (StateId state = 0; state < static_cast<int>(outline_.states.size()); ++state) {
          const StateId counter = outline_.states[state].counter;
          const StateId id = role_ == Role::kCounter ? counter : state;
          if (counter >= 0) {
            Add({BufferKind::kNodeState}, id, outline_.states.at(id).bytes);
          }
        }
        break;
      case Role::kScratch:
        Add({BufferKind::kScratch}, -1, CountersOfAllRanks());
        break;
      default:
        break;
    }
  }

  // A value goes one way across a boundary, its gradient the other. The host waits for sizes.
  void AddExchanged(ValueId value) {
    if (instruction_.opcode == Opcode::kHostWait) {
      Add({BufferKind::kSizes}, value, outline_.values[value].bytes.bound);
      return;
    }
    const bool goes_on = (instruction_.opcode == Opcode::kSend) == (role_ == Role::kValue);
    const std::vector<Boundary>& boundaries = goes_on ? outline_.sent : outline_.received;
    const bool crosses = std::any_of(boundaries.begin(), boundaries.end(),
                                     [&](const Boundary& boundary) { return boundary.value == value; });
    if (crosses && role_ == Role::kValue) {
      AddValue(value);
    } else if (crosses && shapes_.empty()) {
      AddGradient(value);
    } else if (!crosses && role_ == Role::kGradient && shapes_.empty()) {
      shapes_.push_back({});  // fits nothing
    }
  }

  int64_t CountersOfAllRanks() const {
    int64_t counted = 0;
    for (const NodeState& state : outline_.states) {
      counted += state.counter < 0 ? 0 : outline_.states.at(state.counter).bytes;
    }
    return counted * options_.dense.inner * options_.dense.outer;
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
    constexpr auto kMain = &UnitPrecision::main;
    constexpr auto kCompute = &UnitPrecision::compute;
    constexpr auto kTransport = &UnitPrecision::transport;
    const bool replicated = strategy.inner.optimizer == Placement::kReplicate;
    const bool accumulated = strategy.inner.gradients != Placement::kShard;
    const bool outer_sharded = strategy.outer.optimizer == Placement::kShard;
    // What this rank reduces, and what it updates.
    const Extent reduced = replicated ? Extent::kAll : Extent::kShard;
    const Extent updated = outer_sharded ? Extent::kOuterShard : reduced;
    const auto bytes = [&](Extent extent, int UnitPrecision::*type) {
      return BytesOf(options_, outline_, u, extent, type);
    };
    const bool gathers = instruction_.opcode == Opcode::kUnshard;  // else over the outer group
    const bool reduces = instruction_.opcode == Opcode::kReduceGradients;
    const bool one_part = instruction_.opcode == Opcode::kZero || instruction_.opcode == Opcode::kRound;
    switch (role_) {
      case Role::kShard:
        Add({gathers && GathersOuter(options_, unit) ? BufferKind::kOuterGathered : UpdatedOf(unit)}, u,
            bytes(gathers ? Extent::kShard : updated, kCompute));
        break;
      case Role::kGathered:
        Add({gathers ? BufferKind::kGathered : BufferKind::kOuterGathered}, u,
            bytes(gathers ? Extent::kAll : Extent::kShard, kCompute));
        break;
      case Role::kContribution:
        if (!reduces || !accumulated) {
          Add({BufferKind::kContribution}, u, one_part ? 0 : bytes(Extent::kAll, kTransport));
        }
        break;
      case Role::kCollected:
        Add({BufferKind::kCollected}, u, 0);
        break;
      case Role::kSum:
        if (!reduces || accumulated) {
          Add({BufferKind::kFullGradient}, u, bytes(Extent::kAll, kMain));
        }
        break;
      case Role::kStaging:
        if (!reduces || HasInnerPeers(options_, unit)) {
          Add({BufferKind::kStaging}, u,
              reduces ? bytes(Extent::kAll, accumulated ? kMain : kTransport) : bytes(reduced, kMain));
        }
        break;
      case Role::kReduced:
        Add({BufferKind::kGradients}, u, bytes(reduced, kMain));
        break;
      case Role::kNormTerms:
        Add({BufferKind::kNormTerms}, u, sizes.norm_terms_bytes);
        shapes_.back().optional = reduces;
        break;
      case Role::kOutcome:
        Add({BufferKind::kOutcome}, -1, options_.rings.outcome_bytes);
        break;
      case Role::kInputs:
        Add({BufferKind::kInputs}, -1, options_.rings.inputs_bytes);
        break;
      case Role::kWeights:
        Add({BufferKind::kWeights}, u, bytes(updated, kMain));
        break;
      case Role::kOptimizerState:
        Add({BufferKind::kOptimizerState}, u, 2 * bytes(updated, kMain));
        break;
      case Role::kPublished:
        if (IsPublished(unit)) {
          Add({BufferKind::kPublished}, u, bytes(updated, kCompute));
        }
        break;
      case Role::kUpdateNorms:
        if (options_.parameter_norms) {
          Add({BufferKind::kUpdateNorms}, u, sizes.update_norms_bytes);
        }
        break;
      case Role::kScratch:
        if (sizes.optimizer_scratch_bytes > 0) {
          Add({BufferKind::kScratch}, -1, sizes.optimizer_scratch_bytes);
        }
        break;
      default:
        TANDEM_CHECK(false, "every operand of an instruction of a unit has its shape");
    }
  }

  const Outline& outline_;
  const BuildOptions& options_;
  const Instruction& instruction_;
  const bool validates_;
  std::vector<OperandShape>& shapes_;
  // Of the row at hand.
  Role role_ = Role::kValue;
  uint32_t modes_ = 0;
  bool former_ = false;
};

}  // namespace

void ShapesOf(const Outline& outline, const BuildOptions& options, const Instruction& instruction,
              bool validates, std::vector<OperandShape>& shapes) {
  Shapes(outline, options, instruction, validates, shapes).List();
}

}  // namespace tandem::schedules
