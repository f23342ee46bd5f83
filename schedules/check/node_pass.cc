#include "schedules/check/node_pass.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/program/access.h"

namespace tandem::schedules {
namespace {

void RunOne(Symbols& symbols, const Outline& outline, NodeId node, Opcode opcode, int microbatch,
            PassMemory& memory) {
  const Access& access = AccessOf(outline.nodes[node], opcode);
  std::vector<Symbol> reads;
  reads.reserve(16);
  for (const ValueId value : access.reads) {
    reads.push_back(memory.Value(value));
  }
  for (const ValueId value : access.gradient_reads) {
    reads.push_back(memory.Gradient(value));
  }
  for (const UnitPart& part : access.parameters) {
    reads.push_back(memory.Parameter(part));
  }
  for (const StateId state : access.state_reads) {
    reads.push_back(memory.State(state));
  }
  if (access.reads_inputs) {
    reads.push_back(memory.Inputs());
  }
  const Symbol call = symbols.Of(SymbolOp::kCall, node, static_cast<int>(opcode),
                                 access.reads_inputs ? microbatch : -1, absl::MakeConstSpan(reads));
  int place = 0;
  const auto output = [&] { return symbols.Of(SymbolOp::kOutput, place++, 0, 0, {call}); };
  for (const ValueId value : access.writes) {
    memory.WriteValue(value, output());
  }
  for (const ValueId value : access.gradient_writes) {
    memory.WriteGradient(value, output());
  }
  for (const UnitPart& part : access.parameter_gradients) {
    memory.WriteParameterGradient(part, output());
  }
  for (const StateId state : access.state_adds) {
    memory.AddState(state, output());
  }
}

}  // namespace

void RunPass(Symbols& symbols, const Outline& outline, NodeId node, Opcode opcode, int microbatch,
             PassMemory& memory) {
  if (opcode == Opcode::kBackward && outline.nodes[node].splits_backward) {
    RunOne(symbols, outline, node, Opcode::kBackwardInput, microbatch, memory);
    RunOne(symbols, outline, node, Opcode::kBackwardWeight, microbatch, memory);
    return;
  }
  RunOne(symbols, outline, node, opcode == Opcode::kRecompute ? Opcode::kForward : opcode, microbatch,
         memory);
}

std::string ArgumentName(const Outline& outline, NodeId node, Opcode opcode, int argument) {
  const Access& access = AccessOf(outline.nodes[node], opcode);
  size_t k = argument;
  if (k < access.reads.size()) {
    return outline.values[access.reads[k]].name;
  }
  k -= access.reads.size();
  if (k < access.gradient_reads.size()) {
    return absl::StrCat("the gradient of ", outline.values[access.gradient_reads[k]].name);
  }
  k -= access.gradient_reads.size();
  if (k < access.parameters.size()) {
    return absl::StrCat("the parameters of ", outline.units[access.parameters[k].unit].name);
  }
  k -= access.parameters.size();
  return k < access.state_reads.size() ? outline.states[access.state_reads[k]].name : "the inputs";
}

}  // namespace tandem::schedules
