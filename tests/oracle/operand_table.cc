// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/operand_table.h"

#include <algorithm>
#include <map>

namespace tandem::oracle {
namespace {

using schedules::BufferKind;
using schedules::Instruction;
using schedules::Mode;
using schedules::Opcode;
using schedules::Operand;
using schedules::Program;

const std::vector<BufferKind> kValues = {BufferKind::kActivation, BufferKind::kAllToAll, BufferKind::kSizes,
                                         BufferKind::kBatch, BufferKind::kLosses};
const std::vector<BufferKind> kParameters = {BufferKind::kGathered, BufferKind::kOuterGathered,
                                             BufferKind::kPublished, BufferKind::kWeights};

std::vector<TableRow> PassRows(bool forward) {
  std::vector<TableRow> rows = {
      {"value", "r", "each", kValues},
      {"value", "w", "each", kValues},
      {"gradient of a value", "r", "each", {BufferKind::kActivationGradient}},
      {"gradient of a value", "wa", "each", {BufferKind::kActivationGradient}},
      {"parameters", "r", "each", kParameters},
      {"gradient of parameters", "wa", "each", {BufferKind::kContribution, BufferKind::kCollected}},
      {"state", "r", "each", {BufferKind::kNodeState}}};
  if (forward) {
    rows.push_back({"state", "a", "each", {BufferKind::kNodeState}});
    rows.push_back({"carried state", "wa", "each", {BufferKind::kNodeState}});
  }
  rows.push_back({"inputs", "r", "sometimes", {BufferKind::kInputs}});
  rows.push_back({"scratch", "w", "sometimes", {BufferKind::kScratch}});
  return rows;
}

std::vector<TableRow> RecomputeRows() {
  return {{"value", "r", "each", kValues},
          {"value", "w", "each", kValues},
          {"gradient of a value", "r", "each", {BufferKind::kActivationGradient}},
          {"parameters", "r", "each", kParameters},
          {"state", "r", "each", {BufferKind::kNodeState}},
          {"inputs", "r", "sometimes", {BufferKind::kInputs}},
          {"scratch", "w", "sometimes", {BufferKind::kScratch}}};
}

const std::map<Opcode, std::vector<TableRow>>& Table() {
  using K = BufferKind;
  static const auto* const table = new std::map<Opcode, std::vector<TableRow>>{
      {Opcode::kLoadInputs, {{"source", "r", "once", {K::kHostInputs}}, {"copy", "w", "once", {K::kInputs}}}},
      {Opcode::kLoadBatch, {{"source", "r", "once", {K::kHostBatch}}, {"copy", "w", "once", {K::kBatch}}}},
      {Opcode::kForward, PassRows(true)},
      {Opcode::kRecompute, RecomputeRows()},
      {Opcode::kBackwardInput, PassRows(false)},
      {Opcode::kBackwardWeight, PassRows(false)},
      {Opcode::kSend,
       {{"value", "r", "one of", kValues}, {"gradient of a value", "r", "one of", {K::kActivationGradient}}}},
      {Opcode::kReceive,
       {{"value", "w", "one of", kValues}, {"gradient of a value", "w", "one of", {K::kActivationGradient}}}},
      {Opcode::kHostWait, {{"value", "r", "once", {K::kSizes}}}},
      {Opcode::kUnshard,
       {{"shard", "r", "once", {K::kPublished, K::kWeights, K::kOuterGathered}},
        {"gathered parameters", "w", "once", {K::kGathered}}}},
      {Opcode::kUnshardOuter,
       {{"shard", "r", "once", {K::kPublished, K::kWeights}},
        {"gathered parameters", "w", "once", {K::kOuterGathered}}}},
      {Opcode::kZero, {{"contribution", "w", "once", {K::kContribution}}}},
      {Opcode::kRound,
       {{"collected contribution", "r", "once", {K::kCollected}},
        {"contribution", "w", "once", {K::kContribution}}}},
      {Opcode::kAccumulate,
       {{"contribution", "r", "once", {K::kContribution}},
        {"sum of contributions", "wa", "once", {K::kFullGradient}}}},
      {Opcode::kReduceGradients,
       {{"contribution", "r", "one of", {K::kContribution}},
        {"sum of contributions", "r", "one of", {K::kFullGradient}},
        {"staging", "w", "sometimes", {K::kStaging}},
        {"reduced gradient", "wa", "once", {K::kGradients}},
        {"norm terms", "w", "sometimes", {K::kNormTerms}}}},
      {Opcode::kReduceOuter,
       {{"reduced gradient", "a", "once", {K::kGradients}},
        {"staging", "w", "once", {K::kStaging}},
        {"norm terms", "w", "once", {K::kNormTerms}}}},
      {Opcode::kGradientNorm,
       {{"norm terms", "r", "each", {K::kNormTerms}},
        {"inputs", "r", "once", {K::kInputs}},
        {"outcome", "w", "once", {K::kOutcome}}}},
      {Opcode::kOptimizerStep,
       {{"reduced gradient", "r", "once", {K::kGradients}},
        {"outcome", "r", "once", {K::kOutcome}, true},
        {"inputs", "r", "once", {K::kInputs}},
        {"main weights", "a", "once", {K::kWeights}},
        {"optimizer state", "a", "once", {K::kOptimizerState}},
        {"published weights", "w", "sometimes", {K::kPublished}},
        {"update norms", "w", "sometimes", {K::kUpdateNorms}},
        {"scratch", "w", "sometimes", {K::kScratch}}}},
      {Opcode::kUpdateStates,
       {{"outcome", "r", "once", {K::kOutcome}, true},
        {"counter", "a", "each", {K::kNodeState}},
        {"state", "a", "each", {K::kNodeState}},
        {"scratch", "w", "once", {K::kScratch}}}},
      {Opcode::kCopy,
       {{"source", "r", "each", {K::kBatch, K::kLosses, K::kActivation}},
        {"copy", "w", "each", {K::kBatch, K::kLosses, K::kActivation}}}},
      {Opcode::kReport,
       {{"source", "r", "each", {K::kLosses, K::kUpdateNorms, K::kOutcome}},
        {"copy", "w", "each", {K::kHostLosses, K::kHostUpdateNorms, K::kHostOutcome}}}},
      {Opcode::kSnapshot,
       {{"source", "r", "each", {K::kWeights, K::kOptimizerState, K::kNodeState}},
        {"copy", "w", "each", {K::kHostWeights, K::kHostOptimizerState, K::kHostNodeState}}}},
  };
  return *table;
}

}  // namespace

const std::vector<TableRow>& TableOf(Opcode opcode) { return Table().at(opcode); }

const TableRow* RowOf(const Program& program, const Instruction& instruction, size_t operand) {
  const Operand& of = instruction.operands[operand];
  const BufferKind kind = program.buffers[of.buffer].kind;
  const char mode = "rwa"[static_cast<int>(of.mode)];
  const bool second_half = operand >= instruction.operands.size() / 2;
  for (const TableRow& row : TableOf(instruction.opcode)) {
    const bool fits =
        row.kinds.empty() || std::find(row.kinds.begin(), row.kinds.end(), kind) != row.kinds.end();
    if (fits && row.modes.find(mode) != std::string::npos && !(row.name == "counter" && second_half)) {
      return &row;
    }
  }
  return nullptr;
}

std::vector<Operand> Named(const Program& program, const Instruction& instruction, const std::string& name) {
  std::vector<Operand> named;
  for (size_t k = 0; k < instruction.operands.size(); ++k) {
    const TableRow* const row = RowOf(program, instruction, k);
    if (row != nullptr && row->name == name) {
      named.push_back(instruction.operands[k]);
    }
  }
  return named;
}

}  // namespace tandem::oracle
