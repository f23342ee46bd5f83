// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/reference.h"

#include <algorithm>

#include "schedules/program/unit_bytes.h"

namespace tandem::schedules {
namespace {

constexpr int kInner = 0;
constexpr int kOuter = 1;

}  // namespace

// The values of one microbatch, their gradients and the contributions.
class Reference::Microbatch : public PassMemory {
 public:
  Microbatch(Reference& reference, int number, bool trains)
      : reference_(reference),
        number_(number),
        trains_(trains),
        values_(reference.outline_.values.size(), -1),
        gradients_(reference.outline_.values.size(), -1),
        contributions_(reference.parameters_.size()) {
    const Outline& outline = reference.outline_;
    for (size_t u = 0; u < contributions_.size(); ++u) {
      contributions_[u].assign(outline.units[u].parts.size(), -1);
    }
  }

  int number() const { return number_; }
  Symbol& contribution(UnitId unit, int part) { return contributions_[unit][part]; }
  void SetValue(ValueId value, Symbol symbol) { values_[value] = symbol; }

  void Run(NodeId node, Opcode opcode) {
    RunPass(reference_.symbols_, reference_.outline_.nodes[node], node, opcode, number_, *this);
  }

  // What nothing wrote yet is an expression of its own: no program computes it.
  Symbol Value(ValueId value) { return Written(values_[value]); }
  Symbol Gradient(ValueId value) { return Written(gradients_[value]); }

  Symbol Read(const PassOperand& what) override {
    switch (what.role) {
      case Role::kValue:
        return Value(what.id);
      case Role::kGradient:
        return Gradient(what.id);
      case Role::kParameters:
        return reference_.parameters_[what.id][what.part];
      case Role::kState:
        return reference_.Get(BufferKind::kNodeState, what.id);
      case Role::kCarriedState:
        return trains_ && number_ > 0 ? reference_.Get(BufferKind::kNodeState, what.id)
                                      : reference_.symbols_.Of(SymbolOp::kZero);
      default:
        return reference_.Get(BufferKind::kInputs, -1);
    }
  }

  void Write(const PassOperand& what, Symbol symbol) override {
    reference_.microbatches_.emplace(reference_.symbols_.arguments(symbol)[0], number_);
    switch (what.role) {
      case Role::kGradient:
        AddTo(gradients_[what.id], symbol);
        break;
      case Role::kParameterGradient:
        AddTo(contributions_[what.id][what.part], symbol);
        break;
      case Role::kState:
        if (trains_) {
          Symbol state = reference_.Get(BufferKind::kNodeState, what.id);
          AddTo(state, symbol);
          reference_.Set(BufferKind::kNodeState, what.id, state);
        }
        break;
      case Role::kCarriedState:
        if (trains_) {
          reference_.Set(BufferKind::kNodeState, what.id, symbol);
        }
        break;
      default:
        values_[what.id] = symbol;
    }
  }

 private:
  Symbol Written(Symbol& symbol) {
    if (symbol < 0) {
      symbol = reference_.symbols_.Garbage(-1);
    }
    return symbol;
  }
  void AddTo(Symbol& sum, Symbol symbol) {
    sum = sum < 0 ? symbol : reference_.symbols_.Of(SymbolOp::kAdd, 0, 0, 0, {sum, symbol});
  }

  Reference& reference_;
  const int number_;
  const bool trains_;
  std::vector<Symbol> values_;     // per value; -1: nothing yet
  std::vector<Symbol> gradients_;  // per value
  std::vector<std::vector<Symbol>> contributions_;
};

Reference::Reference(const Outline& outline, const BuildOptions& options, Symbols& symbols)
    : outline_(outline), options_(options), symbols_(symbols), full_(outline.units.size(), -1) {
  for (const Unit& unit : outline.units) {
    parameters_.emplace_back(unit.parts.size(), -1);
    num_writers_.emplace_back(unit.parts.size(), 0);
    is_sum_.emplace_back(unit.parts.size(), false);
  }
  const auto count = [&](const Access& access) {
    for (const UnitPart& part : access.parameter_gradients) {
      const bool several = ++num_writers_[part.unit][part.part] > 1;
      is_sum_[part.unit][part.part] = several || access.sums_parameter_gradients;
    }
  };
  for (const Node& node : outline.nodes) {
    count(node.forward);
    count(node.backward_input);
    count(node.backward_weight);
  }
}

Symbol Reference::Final(BufferKind kind, int subject, int part, int num_parts) const {
  if (const auto found = state_.find({kind, subject, part}); found != state_.end()) {
    return found->second;
  }
  return part < 0 ? symbols_.Initial(kind, subject) : PartOf(part, num_parts, Get(kind, subject));
}

void Reference::Set(BufferKind kind, int subject, Symbol symbol, int part) {
  state_[{kind, subject, part}] = symbol;
}

int Reference::MicrobatchOf(Symbol call) const {
  const auto found = microbatches_.find(call);
  return found == microbatches_.end() ? -1 : found->second;
}

void Reference::Update() {
  Set(BufferKind::kInputs, -1, Get(BufferKind::kHostInputs, -1));
  for (StateId s = 0; s < static_cast<int>(outline_.states.size()); ++s) {
    const StateId counter = outline_.states[s].counter;
    if (counter >= 0) {
      Set(BufferKind::kNodeState, s,
          symbols_.Of(SymbolOp::kUpdated, s, 0, 0,
                      {symbols_.Former(BufferKind::kOutcome, -1), Get(BufferKind::kNodeState, counter),
                       Get(BufferKind::kNodeState, s)}));
      Set(BufferKind::kNodeState, counter, symbols_.Of(SymbolOp::kZero));
    }
  }
  for (const UnitId u : TrainedUnits(outline_)) {
    const Symbol call = symbols_.Of(
        SymbolOp::kOptimizer, u, 0, 0,
        {Get(BufferKind::kGradients, u), symbols_.Former(BufferKind::kOutcome, -1),
         Get(BufferKind::kInputs, -1), Get(BufferKind::kWeights, u), Get(BufferKind::kOptimizerState, u)});
    const auto output = [&](BufferKind kind) {
      Set(kind, u, symbols_.Of(SymbolOp::kOutput, static_cast<int>(kind), 0, 0, {call}));
    };
    output(BufferKind::kWeights);
    output(BufferKind::kOptimizerState);
    if (IsPublished(outline_.units[u])) {
      output(BufferKind::kPublished);
    }
    if (options_.parameter_norms) {
      output(BufferKind::kUpdateNorms);
      Set(BufferKind::kHostUpdateNorms, u, Get(BufferKind::kUpdateNorms, u));
    }
  }
}

void Reference::Save() {
  const auto save = [&](BufferKind kind, int subject) { Set(HostCopyOf(kind), subject, Get(kind, subject)); };
  for (StateId s = 0; s < static_cast<int>(outline_.states.size()); ++s) {
    if (outline_.states[s].counter >= 0) {
      save(BufferKind::kNodeState, s);
    }
  }
  for (const UnitId u : TrainedUnits(outline_)) {
    save(BufferKind::kWeights, u);
    save(BufferKind::kOptimizerState, u);
  }
}

void Reference::Gather() {
  for (UnitId u = 0; u < static_cast<int>(outline_.units.size()); ++u) {
    const Unit& unit = outline_.units[u];
    Symbol all = Get(IsPublished(unit) ? BufferKind::kPublished : BufferKind::kWeights, u);
    if (GathersOuter(options_, unit)) {
      all = symbols_.Of(SymbolOp::kGather, u, kOuter, 0, {all});
    }
    if (GathersInner(options_, unit)) {
      all = symbols_.Of(SymbolOp::kGather, u, kInner, 0, {all});
    }
    for (int p = 0; p < static_cast<int>(unit.parts.size()); ++p) {
      parameters_[u][p] = PartOf(p, unit.parts.size(), all);
    }
  }
}

void Reference::Forward(Microbatch& microbatch) {
  if (outline_.batch >= 0) {
    const int num_parts = std::max(options_.num_microbatches, options_.num_validation_microbatches);
    const Symbol tokens = PartOf(microbatch.number(), num_parts, Get(BufferKind::kHostBatch, outline_.batch));
    Set(BufferKind::kBatch, outline_.batch, tokens, microbatch.number());
    microbatch.SetValue(outline_.batch, tokens);
  }
  for (NodeId n = 0; n < static_cast<int>(outline_.nodes.size()); ++n) {
    microbatch.Run(n, Opcode::kForward);
  }
  for (const ValueId loss : outline_.losses) {
    Set(BufferKind::kLosses, loss, microbatch.Value(loss), microbatch.number());
    Set(BufferKind::kHostLosses, loss, microbatch.Value(loss), microbatch.number());
  }
}

void Reference::Backward(Microbatch& microbatch) {
  for (NodeId n = static_cast<int>(outline_.nodes.size()) - 1; n >= 0; --n) {
    microbatch.Run(n, Opcode::kBackwardInput);
    if (HasWeightHalf(outline_.nodes[n])) {
      microbatch.Run(n, Opcode::kBackwardWeight);
    }
  }
}

void Reference::Reduce(int m, bool last, Microbatch& passes) {
  for (const UnitId u : TrainedUnits(outline_)) {
    const Unit& unit = outline_.units[u];
    std::vector<Symbol> parts;
    for (int p = 0; p < static_cast<int>(unit.parts.size()); ++p) {
      const Symbol written = passes.contribution(u, p);
      parts.push_back(num_writers_[u][p] == 0 ? symbols_.Of(SymbolOp::kZero)
                      : is_sum_[u][p] && IsRounded(unit, p)
                          ? symbols_.Of(SymbolOp::kRound, 0, 0, 0, {written})
                          : written);
    }
    const Symbol contribution = symbols_.Concat(parts);
    const Strategy& strategy = PlacementOf(options_, unit);
    if (strategy.inner.gradients == Placement::kShard) {
      Set(BufferKind::kGradients, u,
          m == 0
              ? symbols_.Of(SymbolOp::kFold, u, kInner, 0, {contribution})
              : symbols_.Of(SymbolOp::kFold, u, kInner, 0, {Get(BufferKind::kGradients, u), contribution}));
    } else {
      full_[u] = m == 0 ? contribution : symbols_.Of(SymbolOp::kAdd, 0, 0, 0, {full_[u], contribution});
      if (last) {
        Set(BufferKind::kGradients, u, symbols_.Of(SymbolOp::kFold, u, kInner, 0, {full_[u]}));
      }
    }
    if (last && strategy.outer.gradients == Placement::kPartial) {
      Set(BufferKind::kGradients, u,
          symbols_.Of(SymbolOp::kFold, u, kOuter, 0, {Get(BufferKind::kGradients, u)}));
    }
  }
}

void Reference::Step() {
  Set(BufferKind::kInputs, -1, Get(BufferKind::kHostInputs, -1));
  Gather();
  for (int m = 0; m < options_.num_microbatches; ++m) {
    Microbatch microbatch(*this, m, /*trains=*/true);
    Forward(microbatch);
    Backward(microbatch);
    Reduce(m, m + 1 == options_.num_microbatches, microbatch);
  }
  std::vector<Symbol> terms;
  for (const UnitId u : TrainedUnits(outline_)) {
    terms.push_back(symbols_.Of(SymbolOp::kNormTerms, u, 0, 0, {Get(BufferKind::kGradients, u)}));
    Set(BufferKind::kNormTerms, u, terms.back());
  }
  terms.push_back(Get(BufferKind::kInputs, -1));
  const Symbol norm = symbols_.Of(SymbolOp::kNorm, 0, 0, 0, absl::MakeConstSpan(terms));
  Set(BufferKind::kOutcome, -1, norm);
  Set(BufferKind::kHostOutcome, -1, norm);
}

void Reference::Validate() {
  const auto reads_inputs = [](const Node& node) { return node.forward.reads_inputs; };
  if (std::any_of(outline_.nodes.begin(), outline_.nodes.end(), reads_inputs)) {
    Set(BufferKind::kInputs, -1, Get(BufferKind::kHostInputs, -1));
  }
  Gather();
  for (int m = 0; m < options_.num_validation_microbatches; ++m) {
    Microbatch microbatch(*this, m, /*trains=*/false);
    Forward(microbatch);
  }
}

}  // namespace tandem::schedules
