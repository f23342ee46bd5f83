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

Execution::Execution(const Outline& outline, const BuildOptions& options, const Program& program,
                     Symbols& symbols)
    : outline_(outline), options_(options), program_(program), symbols_(symbols), cells_(program) {
  state_.resize(cells_.size());
  for (BufferId b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.life == Life::kLocal) {
      WriteGarbage({.buffer = b});
      continue;
    }
    Write({.buffer = b}, symbols.Initial(buffer.kind, buffer.subject));
    if (buffer.life == Life::kRing) {
      Write({.buffer = b, .former = true}, symbols.Former(buffer.kind, buffer.subject));
    }
  }
}

void Execution::Run() {
  for (const Instruction& instruction : program_.instructions) {
    RunInstruction(instruction);
  }
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
    state_[cell] = symbols_.Garbage(cell);
  }
}

void Execution::WriteOrAdd(const Operand& operand, Symbol symbol) {
  Write(operand,
        operand.mode == Mode::kAdds ? symbols_.Of(SymbolOp::kAdd, 0, 0, 0, {Read(operand), symbol}) : symbol);
}

void Execution::RunInstruction(const Instruction& in) {
  const auto of = [&](Role role) -> const Operand& { return *Find(in, role); };
  switch (in.opcode) {
    case Opcode::kLoadInputs:
    case Opcode::kLoadBatch:
    case Opcode::kReport:
      Copy(in.operands);
      break;
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight: {
      PassOperands memory(*this, in);
      RunPass(symbols_, outline_, in.target, in.opcode, in.microbatch, memory);
      memory.Finish();
      break;
    }
    case Opcode::kSend:
    case Opcode::kReceive:
      Exchange(in);
      break;
    case Opcode::kHostWait:
      break;
    case Opcode::kUnshard:
    case Opcode::kUnshardOuter:
      Write(of(Role::kGathered),
            symbols_.Of(SymbolOp::kGather, in.target, in.opcode == Opcode::kUnshard ? 0 : 1, 0,
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
    case Opcode::kGradientNorm:
      scratch_.clear();
      for (const Operand& operand : in.operands) {
        if (operand.mode == Mode::kReads) {
          scratch_.push_back(Read(operand));
        }
      }
      Write(of(Role::kOutcome), symbols_.Of(SymbolOp::kNorm, 0, 0, 0, absl::MakeConstSpan(scratch_)));
      break;
    case Opcode::kOptimizerStep:
      Optimize(in);
      break;
    case Opcode::kUpdateStates:
      UpdateStates(in);
      break;
    case Opcode::kFill:
      for (const Operand& operand : in.operands) {
        WriteGarbage(operand);
      }
      break;
  }
}

void Execution::Copy(const std::vector<Operand>& operands) {
  const size_t half = operands.size() / 2;
  for (size_t k = 0; k < half; ++k) {
    Write(operands[half + k], Read(operands[k]));
  }
}

void Execution::Exchange(const Instruction& in) {
  const Operand& operand = in.operands.front();
  const bool gradient = operand.role == Role::kGradient;
  if (in.opcode == Opcode::kSend) {
    sent_[{in.target, gradient, in.microbatch}].push_back(Read(operand));
  } else {
    Write(operand, symbols_.Of(SymbolOp::kReceived, in.target, in.microbatch, gradient ? 1 : 0));
  }
}

void Execution::Reduce(const Instruction& in) {
  const bool outer = in.opcode == Opcode::kReduceOuter;
  const Operand& reduced = *Find(in, Role::kReduced);
  const Operand* const sum = Find(in, Role::kSum);
  const Operand* const added = outer ? &reduced : sum != nullptr ? sum : Find(in, Role::kContribution);
  const Symbol of_ranks = Read(*added);
  const Symbol folded = !outer && reduced.mode == Mode::kAdds
                            ? symbols_.Of(SymbolOp::kFold, in.target, 0, 0, {Read(reduced), of_ranks})
                            : symbols_.Of(SymbolOp::kFold, in.target, outer ? 1 : 0, 0, {of_ranks});
  if (const Operand* const staging = Find(in, Role::kStaging)) {
    WriteGarbage(*staging);
  }
  Write(reduced, folded);
  if (const Operand* const terms = Find(in, Role::kNormTerms)) {
    Write(*terms, symbols_.Of(SymbolOp::kNormTerms, in.target, 0, 0, {folded}));
  }
}

void Execution::Optimize(const Instruction& in) {
  scratch_.clear();
  for (const Operand& operand : in.operands) {
    if (operand.mode != Mode::kWrites) {
      scratch_.push_back(Read(operand));
    }
  }
  const Symbol call = symbols_.Of(SymbolOp::kOptimizer, in.target, 0, 0, absl::MakeConstSpan(scratch_));
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
    Write(*states[k], symbols_.Of(SymbolOp::kUpdated, program_.buffers[states[k]->buffer].subject, 0, 0,
                                  {outcome, Read(*counters[k]), Read(*states[k])}));
    Write(*counters[k], symbols_.Of(SymbolOp::kZero));
  }
  WriteGarbage(*Find(in, Role::kScratch));
}

}  // namespace tandem::schedules
