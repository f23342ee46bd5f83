#include "schedules/check/execution.h"

#include <algorithm>
#include <utility>

#include "schedules/check/node_pass.h"
#include "schedules/check/operand_shapes.h"
#include "schedules/program/access.h"

namespace tandem::schedules {

// A pass of a node, whose operands are found by their place (program.h).
class Execution::PassOperands : public PassMemory {
 public:
  PassOperands(Execution& execution, const Instruction& in)
      : execution_(execution), in_(in), access_(AccessOf(execution.outline_.nodes[in.target], in.opcode)) {
    // A Recompute leaves out some writes and a validation some kinds of them, so that places are counted from
    // the operands that are there.
    const bool again = in.opcode == Opcode::kRecompute;
    int writes = 0;
    for (const ValueId value : access_.writes) {
      const bool written = !again || IsRecomputed(execution.options_, value);
      places_.push_back(written ? static_cast<int>(access_.reads.size()) + writes++ : -1);
    }
    gradient_reads_ = static_cast<int>(access_.reads.size()) + writes;
    gradient_writes_ = gradient_reads_ + static_cast<int>(access_.gradient_reads.size());
    const int rest = static_cast<int>(access_.parameters.size() + access_.state_reads.size()) +
                     (access_.reads_inputs ? 1 : 0) + (access_.scratch.bound > 0 ? 1 : 0);
    changes_ = static_cast<int>(in.operands.size()) > gradient_writes_ + rest;
    parameters_ = gradient_writes_ + (changes_ ? static_cast<int>(access_.gradient_writes.size()) : 0);
    parameter_gradients_ = parameters_ + static_cast<int>(access_.parameters.size());
    state_reads_ =
        parameter_gradients_ + (changes_ ? static_cast<int>(access_.parameter_gradients.size()) : 0);
    state_adds_ = state_reads_ + static_cast<int>(access_.state_reads.size());
    inputs_ = state_adds_ + (changes_ ? static_cast<int>(access_.state_adds.size()) : 0);
  }

  Symbol Value(ValueId value) override {
    for (const auto& [written, symbol] : intermediates_) {
      if (written == value) {
        return symbol;
      }
    }
    const int place = Find(access_.reads, value);
    return place < 0 ? Undeclared() : execution_.Read(in_.operands[place]);
  }

  Symbol Gradient(ValueId value) override {
    if (const int place = Find(access_.gradient_reads, value); place >= 0) {
      return execution_.Read(in_.operands[gradient_reads_ + place]);
    }
    // The weight half reads what the input half wrote.
    const int place = Find(access_.gradient_writes, value);
    for (const auto& [written, symbol] : pending_) {
      if (place >= 0 && written == gradient_writes_ + place) {
        return symbol;
      }
    }
    return Undeclared();
  }

  Symbol Parameter(const UnitPart& part) override {
    const int place = Find(access_.parameters, part);
    return place < 0 ? Undeclared() : execution_.ReadPart(in_.operands[parameters_ + place], part);
  }

  Symbol State(StateId state) override {
    const int place = Find(access_.state_reads, state);
    return place < 0 ? Undeclared() : execution_.Read(in_.operands[state_reads_ + place]);
  }

  Symbol Inputs() override { return execution_.Read(in_.operands[inputs_]); }

  void WriteValue(ValueId value, Symbol symbol) override {
    const int place = Find(access_.writes, value);
    if (place < 0) {
      intermediates_.emplace_back(value, symbol);  // between the halves of a whole Backward
    } else if (places_[place] >= 0) {
      Change(0, places_[place], symbol);
    }
  }

  void WriteGradient(ValueId value, Symbol symbol) override {
    if (changes_) {
      Change(gradient_writes_, Find(access_.gradient_writes, value), symbol);
    }
  }

  void WriteParameterGradient(const UnitPart& part, Symbol symbol) override {
    if (changes_) {
      Change(parameter_gradients_, Find(access_.parameter_gradients, part), symbol);
    }
  }

  void AddState(StateId state, Symbol symbol) override {
    if (changes_) {
      Change(state_adds_, Find(access_.state_adds, state), symbol);
    }
  }

  // What it writes is there only after all that it reads was read.
  void Finish() {
    for (const auto& [place, symbol] : pending_) {
      execution_.Write(in_.operands[place], symbol);
    }
    if (access_.scratch.bound > 0) {
      execution_.WriteGarbage(in_.operands.back());
    }
  }

 private:
  template <typename T>
  static int Find(const std::vector<T>& list, const T& entry) {
    const auto found = std::find(list.begin(), list.end(), entry);
    return found == list.end() ? -1 : static_cast<int>(found - list.begin());
  }

  // The outline's whole Backward does not declare what one of its halves reads.
  Symbol Undeclared() { return execution_.symbols_.Garbage(-1); }

  // Over what is there or to it, as the operand says; to what the other half wrote.
  void Change(int first, int place, Symbol symbol) {
    if (place < 0) {
      return;
    }
    const auto add = [&](Symbol old) {
      return execution_.symbols_.Of(SymbolOp::kAdd, 0, 0, 0, {old, symbol});
    };
    for (auto& [written, sum] : pending_) {
      if (written == first + place) {
        sum = add(sum);
        return;
      }
    }
    const Operand& operand = in_.operands[first + place];
    pending_.emplace_back(first + place,
                          operand.mode == Mode::kAdds ? add(execution_.Read(operand)) : symbol);
  }

  Execution& execution_;
  const Instruction& in_;
  const Access& access_;
  std::vector<int> places_;  // per Access::writes; -1: not written
  int gradient_reads_ = 0;   // the first operand of each list
  int gradient_writes_ = 0;
  int parameters_ = 0;
  int parameter_gradients_ = 0;
  int state_reads_ = 0;
  int state_adds_ = 0;
  int inputs_ = 0;
  bool changes_ = false;  // it writes gradients and state
  std::vector<std::pair<ValueId, Symbol>> intermediates_;
  std::vector<std::pair<int, Symbol>> pending_;  // operand -> symbol
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
  const Operand& gradients = in.operands[outer ? 0 : 2];
  const Symbol added = Read(in.operands[0]);
  const Symbol sum = !outer && gradients.mode == Mode::kAdds
                         ? symbols_.Of(SymbolOp::kFold, in.target, 0, 0, {Read(gradients), added})
                         : symbols_.Of(SymbolOp::kFold, in.target, outer ? 1 : 0, 0, {added});
  WriteGarbage(in.operands[1]);
  Write(gradients, sum);
  if (in.operands.size() > (outer ? 2U : 3U)) {
    Write(in.operands.back(), symbols_.Of(SymbolOp::kNormTerms, in.target, 0, 0, {sum}));
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

}  // namespace tandem::schedules
