// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/execution.h"

#include <algorithm>
#include <utility>

#include "schedules/check/node_pass.h"
#include "schedules/check/operand_shapes.h"
#include "schedules/program/pass_operand.h"

namespace tandem::schedules {

// The operands of a node's pass, by what they are.
class Execution::PassOperands : public PassMemory {
 public:
  PassOperands(Execution& execution, const Instruction& in) : execution_(execution), in_(in) {
    const Node& node = execution.outline_.nodes[in.target];
    const std::vector<bool>& recompute = execution.options_.recompute;
    ListOperands(node, in.opcode, recompute, /*trains=*/true, operands_);
    if (operands_.size() != in.operands.size()) {  // a validation changes nothing but values
      ListOperands(node, in.opcode, recompute, /*trains=*/false, operands_);
    }
  }

  Symbol Read(const PassOperand& what) override {
    const int place = Find(what);
    if (what.what == PassOperand::What::kCarriedState &&
        (place < 0 || in_.operands[place].mode == Mode::kWrites)) {
      return execution_.symbols_.Of(SymbolOp::kZero);
    }
    if (place >= 0) {
      const Operand& operand = in_.operands[place];
      return what.what == PassOperand::What::kParameters ? execution_.ReadPart(operand, {what.id, what.part})
                                                         : execution_.Read(operand);
    }
    // The weight half reads what the input half wrote. What else the whole Backward does not declare is
    // garbage.
    for (const auto& [written, symbol] : written_) {
      if (written.what == what.what && written.id == what.id && written.part == what.part) {
        return symbol;
      }
    }
    return execution_.symbols_.Garbage(-1);
  }

  void Write(const PassOperand& what, Symbol symbol) override {
    const auto add = [&](Symbol old) {
      return execution_.symbols_.Of(SymbolOp::kAdd, 0, 0, 0, {old, symbol});
    };
    for (auto& [written, sum] : written_) {
      if (written == what) {  // by the other half
        sum = add(sum);
        return;
      }
    }
    const int place = Find(what);
    const bool adds = place >= 0 && in_.operands[place].mode == Mode::kAdds &&
                      what.what != PassOperand::What::kCarriedState;
    written_.emplace_back(what, adds ? add(execution_.Read(in_.operands[place])) : symbol);
  }

  // What it writes is there only after all that it reads was read.
  void Finish() {
    for (const auto& [what, symbol] : written_) {
      if (const int place = Find(what); place >= 0) {
        execution_.Write(in_.operands[place], symbol);
      }
    }
    if (!operands_.empty() && operands_.back().what == PassOperand::What::kScratch) {
      execution_.WriteGarbage(in_.operands.back());
    }
  }

 private:
  // Its place among the operands; -1: it is none of them.
  int Find(const PassOperand& what) const {
    const auto found = std::find(operands_.begin(), operands_.end(), what);
    return found == operands_.end() ? -1 : static_cast<int>(found - operands_.begin());
  }

  Execution& execution_;
  const Instruction& in_;
  std::vector<PassOperand> operands_;
  std::vector<std::pair<PassOperand, Symbol>> written_;
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
  const std::vector<Operand>& operands = in.operands;
  switch (in.opcode) {
    case Opcode::kLoadInputs:
    case Opcode::kLoadBatch:
    case Opcode::kReport:
      Copy(operands);
      break;
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackward:
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
      Write(operands[1], symbols_.Of(SymbolOp::kGather, in.target, in.opcode == Opcode::kUnshard ? 0 : 1, 0,
                                     {Read(operands[0])}));
      break;
    case Opcode::kZero:
      Write(operands[0], symbols_.Of(SymbolOp::kZero));
      break;
    case Opcode::kRound:
      Write(operands[1], symbols_.Of(SymbolOp::kRound, 0, 0, 0, {Read(operands[0])}));
      break;
    case Opcode::kAccumulate:
      WriteOrAdd(operands[1], Read(operands[0]));
      break;
    case Opcode::kReduceGradients:
    case Opcode::kReduceOuter:
      Reduce(in);
      break;
    case Opcode::kGradientNorm: {
      scratch_.clear();
      for (size_t k = 0; k + 1 < operands.size(); ++k) {
        scratch_.push_back(Read(operands[k]));
      }
      Write(operands.back(), symbols_.Of(SymbolOp::kNorm, 0, 0, 0, absl::MakeConstSpan(scratch_)));
      break;
    }
    case Opcode::kOptimizerStep:
      Optimize(in);
      break;
    case Opcode::kUpdateStates:
      UpdateStates(in);
      break;
    case Opcode::kFill:
      for (const Operand& operand : operands) {
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
  const bool gradient = program_.buffers[operand.buffer].kind == BufferKind::kActivationGradient;
  if (in.opcode == Opcode::kSend) {
    sent_[{in.target, gradient, in.microbatch}].push_back(Read(operand));
  } else {
    Write(operand, symbols_.Of(SymbolOp::kReceived, in.target, in.microbatch, gradient ? 1 : 0));
  }
}

void Execution::Reduce(const Instruction& in) {
  const bool outer = in.opcode == Opcode::kReduceOuter;
  const bool exchanges = program_.buffers[in.operands[1].buffer].kind == BufferKind::kStaging;
  const size_t sum_at = outer ? 0 : exchanges ? 2 : 1;
  const Operand& gradients = in.operands[sum_at];
  const Symbol added = Read(in.operands[0]);
  const Symbol sum = !outer && gradients.mode == Mode::kAdds
                         ? symbols_.Of(SymbolOp::kFold, in.target, 0, 0, {Read(gradients), added})
                         : symbols_.Of(SymbolOp::kFold, in.target, outer ? 1 : 0, 0, {added});
  if (exchanges) {
    WriteGarbage(in.operands[1]);
  }
  Write(gradients, sum);
  const Operand& last = in.operands.back();
  if (program_.buffers[last.buffer].kind == BufferKind::kNormTerms) {
    Write(last, symbols_.Of(SymbolOp::kNormTerms, in.target, 0, 0, {sum}));
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
    if (kind == BufferKind::kScratch) {
      WriteGarbage(operand);
    } else if (operand.mode != Mode::kReads) {
      Write(operand, symbols_.Of(SymbolOp::kOutput, static_cast<int>(kind), 0, 0, {call}));
    }
  }
}

void Execution::UpdateStates(const Instruction& in) {
  const Symbol outcome = Read(in.operands.front());
  for (size_t k = 1; k + 2 < in.operands.size(); k += 2) {
    const Operand& counter = in.operands[k];
    const Operand& state = in.operands[k + 1];
    Write(state, symbols_.Of(SymbolOp::kUpdated, program_.buffers[state.buffer].subject, 0, 0,
                             {outcome, Read(counter), Read(state)}));
    Write(counter, symbols_.Of(SymbolOp::kZero));
  }
  WriteGarbage(in.operands.back());
}

}  // namespace tandem::schedules
