// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/execution.h"

#include <algorithm>
#include <utility>

#include "schedules/check/node_pass.h"
#include "schedules/program/pass_operand.h"
#include "schedules/program/signature.h"

namespace tandem::schedules {

// The operands of a node's pass, by what they are.
class Execution::PassOperands : public PassMemory {
 public:
  PassOperands(Execution& execution, const Instruction& in) : execution_(execution), in_(in) {}

  Symbol Read(const PassOperand& what) override {
    const Operand* const operand = Find(execution_.program_, in_, what);
    if (what.role == Role::kCarriedState && (operand == nullptr || operand->mode == Mode::kWrites)) {
      return execution_.symbols_.Of(SymbolOp::kZero);
    }
    return what.role == Role::kParameters ? execution_.ReadPart(*operand, {what.id, what.part})
                                          : execution_.Read(*operand);
  }

  void Write(const PassOperand& what, Symbol symbol) override {
    const Operand* const operand = Find(execution_.program_, in_, what);
    if (operand == nullptr) {
      return;  // kept, or of training alone
    }
    const bool adds = operand->mode == Mode::kAdds && what.role != Role::kCarriedState;
    written_.emplace_back(
        operand,
        adds ? execution_.symbols_.Of(SymbolOp::kAdd, 0, 0, 0, {execution_.Read(*operand), symbol}) : symbol);
  }

  // What it writes is there only after all that it reads was read.
  void Finish() {
    for (const auto& [operand, symbol] : written_) {
      execution_.Write(*operand, symbol);
    }
    if (const Operand* const scratch = schedules::Find(in_, Role::kScratch)) {
      execution_.WriteGarbage(*scratch);
    }
  }

 private:
  Execution& execution_;
  const Instruction& in_;
  std::vector<std::pair<const Operand*, Symbol>> written_;
};

Execution::Execution(const Stage& stage, const Program& program, Symbols& symbols, int first_garbage)
    : outline_(stage.outline),
      origin_(stage.origin),
      program_(program),
      symbols_(symbols),
      cells_(program),
      first_garbage_(first_garbage) {
  state_.resize(cells_.size());
  for (BufferId b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.life == Life::kLocal) {
      WriteGarbage({.buffer = b});
      continue;
    }
    Write({.buffer = b}, symbols.Initial(buffer.kind, SubjectOf(buffer)));
    if (buffer.life == Life::kRing) {
      Write({.buffer = b, .former = true}, symbols.Former(buffer.kind, SubjectOf(buffer)));
    }
  }
}

int Execution::SubjectOf(const Buffer& buffer) const {
  if (buffer.subject < 0) {
    return -1;
  }
  switch (InfoOf(buffer.kind).subject) {
    case SubjectKind::kUnit:
      return origin_.units[buffer.subject];
    case SubjectKind::kState:
      return origin_.states[buffer.subject];
    case SubjectKind::kValue:
      return origin_.values[buffer.subject];
    case SubjectKind::kNone:
      break;
  }
  return buffer.subject;
}

Symbol Execution::Read(const Operand& operand) {
  const Cells::Range range = cells_.Of(operand);
  return IsDivided(operand)
             ? symbols_.Concat(absl::MakeConstSpan(state_).subspan(range.begin, range.end - range.begin))
             : state_[range.begin];
}

Symbol Execution::ReadPart(const Operand& operand, const UnitPart& part) {
  const Symbol read = Read(operand);
  return operand.part < 0 && outline_.units[part.unit].parts.size() > 1 ? symbols_.Part(part.part, read)
                                                                        : read;
}

void Execution::Write(const Operand& operand, Symbol symbol) {
  const Cells::Range range = cells_.Of(operand);
  if (!IsDivided(operand)) {
    state_[range.begin] = symbol;
    return;
  }
  for (int cell = range.begin; cell < range.end; ++cell) {
    state_[cell] = symbols_.Part(cell - range.begin, symbol);
  }
}

void Execution::WriteGarbage(const Operand& operand) {
  const Cells::Range range = cells_.Of(operand);
  for (int cell = range.begin; cell < range.end; ++cell) {
    state_[cell] = symbols_.Garbage(first_garbage_ + cell);
  }
}

void Execution::WriteOrAdd(const Operand& operand, Symbol symbol) {
  Write(operand,
        operand.mode == Mode::kAdds ? symbols_.Of(SymbolOp::kAdd, 0, 0, 0, {Read(operand), symbol}) : symbol);
}

void Execution::Run(const Instruction& in) {
  const auto of = [&](Role role) -> const Operand& { return *Find(in, role); };
  switch (in.opcode) {
    case Opcode::kLoadInputs:
    case Opcode::kLoadBatch:
    case Opcode::kCopy:
    case Opcode::kReport:
    case Opcode::kSnapshot:
      Copy(in.operands);
      break;
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight: {
      PassOperands memory(*this, in);
      RunPass(symbols_, outline_.nodes[in.target], origin_.nodes[in.target], in.opcode, in.microbatch,
              memory);
      memory.Finish();
      break;
    }
    case Opcode::kSend:
    case Opcode::kReceive:
    case Opcode::kGradientNorm:
    case Opcode::kHostWait:
      break;
    case Opcode::kUnshard:
    case Opcode::kUnshardOuter:
      Write(of(Role::kGathered),
            symbols_.Of(SymbolOp::kGather, origin_.units[in.target], in.opcode == Opcode::kUnshard ? 0 : 1, 0,
                        {Read(of(Role::kShard))}));
      break;
    case Opcode::kZero:
      Write(of(Role::kContribution), symbols_.Of(SymbolOp::kZero));
      break;
    case Opcode::kRound:
      Write(of(Role::kContribution), symbols_.Of(SymbolOp::kRound, 0, 0, 0, {Read(of(Role::kCollected))}));
      break;
    case Opcode::kAccumulate:
      WriteOrAdd(of(Role::kSum), Read(of(Role::kContribution)));
      break;
    case Opcode::kReduceGradients:
    case Opcode::kReduceOuter:
      Reduce(in);
      break;
    case Opcode::kOptimizerStep:
      Optimize(in);
      break;
    case Opcode::kUpdateStates:
      UpdateStates(in);
      break;
  }
}

void Execution::Copy(const std::vector<Operand>& operands) {
  const size_t half = operands.size() / 2;
  for (size_t k = 0; k < half; ++k) {
    Write(operands[half + k], Read(operands[k]));
  }
}

void Execution::ReadNorm(const Instruction& norm, std::vector<std::pair<UnitId, Symbol>>& terms,
                         std::vector<Symbol>& inputs) {
  for (const Operand& operand : norm.operands) {
    if (operand.role == Role::kNormTerms) {
      terms.emplace_back(SubjectOf(program_.buffers[operand.buffer]), Read(operand));
    } else if (operand.mode == Mode::kReads) {
      inputs.push_back(Read(operand));
    }
  }
}

void Execution::EndNorm(const Instruction& norm, Symbol outcome) {
  Write(*Find(norm, Role::kOutcome), outcome);
}

void Execution::Reduce(const Instruction& in) {
  const bool outer = in.opcode == Opcode::kReduceOuter;
  const Operand& reduced = *Find(in, Role::kReduced);
  const Operand* const sum = Find(in, Role::kSum);
  const Operand* const added = outer ? &reduced : sum != nullptr ? sum : Find(in, Role::kContribution);
  const Symbol of_ranks = Read(*added);
  const UnitId unit = origin_.units[in.target];
  const Symbol folded = !outer && reduced.mode == Mode::kAdds
                            ? symbols_.Of(SymbolOp::kFold, unit, 0, 0, {Read(reduced), of_ranks})
                            : symbols_.Of(SymbolOp::kFold, unit, outer ? 1 : 0, 0, {of_ranks});
  if (const Operand* const staging = Find(in, Role::kStaging)) {
    WriteGarbage(*staging);
  }
  Write(reduced, folded);
  if (const Operand* const terms = Find(in, Role::kNormTerms)) {
    Write(*terms, symbols_.Of(SymbolOp::kNormTerms, unit, 0, 0, {folded}));
  }
}

void Execution::Optimize(const Instruction& in) {
  scratch_.clear();
  for (const Operand& operand : in.operands) {
    if (operand.mode != Mode::kWrites) {
      scratch_.push_back(Read(operand));
    }
  }
  const Symbol call =
      symbols_.Of(SymbolOp::kOptimizer, origin_.units[in.target], 0, 0, absl::MakeConstSpan(scratch_));
  for (const Operand& operand : in.operands) {
    const BufferKind kind = program_.buffers[operand.buffer].kind;
    if (operand.role == Role::kScratch) {
      WriteGarbage(operand);
    } else if (operand.mode != Mode::kReads) {
      Write(operand, symbols_.Of(SymbolOp::kOutput, static_cast<int>(kind), 0, 0, {call}));
    }
  }
}

void Execution::UpdateStates(const Instruction& in) {
  const Symbol outcome = Read(*Find(in, Role::kOutcome));
  std::vector<const Operand*> counters;
  std::vector<const Operand*> states;
  for (const Operand& operand : in.operands) {
    if (operand.role == Role::kCounter || operand.role == Role::kState) {
      (operand.role == Role::kCounter ? counters : states).push_back(&operand);
    }
  }
  for (size_t k = 0; k < states.size(); ++k) {
    Write(*states[k], symbols_.Of(SymbolOp::kUpdated, SubjectOf(program_.buffers[states[k]->buffer]), 0, 0,
                                  {outcome, Read(*counters[k]), Read(*states[k])}));
    Write(*counters[k], symbols_.Of(SymbolOp::kZero));
  }
  WriteGarbage(*Find(in, Role::kScratch));
}

}  // namespace tandem::schedules
