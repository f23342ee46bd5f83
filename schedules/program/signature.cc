// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/signature.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "platform/check.h"

namespace tandem::schedules {
namespace {

constexpr uint32_t kRead = 1U << static_cast<int>(Mode::kReads);
constexpr uint32_t kWrite = 1U << static_cast<int>(Mode::kWrites);
constexpr uint32_t kAdd = 1U << static_cast<int>(Mode::kAdds);
constexpr bool kFormer = true;

constexpr std::array<const char*, kNumRoles> kRoles = {"value",
                                                       "gradient of a value",
                                                       "parameters",
                                                       "gradient of parameters",
                                                       "state",
                                                       "carried state",
                                                       "inputs",
                                                       "scratch",
                                                       "source",
                                                       "copy",
                                                       "shard",
                                                       "gathered parameters",
                                                       "contribution",
                                                       "collected contribution",
                                                       "sum of contributions",
                                                       "staging",
                                                       "reduced gradient",
                                                       "norm terms",
                                                       "outcome",
                                                       "main weights",
                                                       "optimizer state",
                                                       "published weights",
                                                       "update norms",
                                                       "counter"};

// What a node's pass reads and writes, in the order of Access. A list may be empty.
// A recompute changes nothing but values.
std::vector<OperandRow> Pass(Opcode opcode) {
  constexpr auto kEach = Presence::kEach;
  const bool again = opcode == Opcode::kRecompute;
  std::vector<OperandRow> rows = {
      {Role::kValue, kRead, kEach}, {Role::kValue, kWrite, kEach}, {Role::kGradient, kRead, kEach}};
  if (!again) {
    rows.push_back({Role::kGradient, kWrite | kAdd, kEach});
  }
  rows.push_back({Role::kParameters, kRead, kEach});
  if (!again) {
    rows.push_back({Role::kParameterGradient, kWrite | kAdd, kEach});
  }
  rows.push_back({Role::kState, kRead, kEach});
  if (opcode == Opcode::kForward) {
    rows.push_back({Role::kState, kAdd, kEach});
    rows.push_back({Role::kCarriedState, kWrite | kAdd, kEach});
  }
  rows.push_back({Role::kInputs, kRead, Presence::kSometimes, false, "if the pass reads the step number"});
  rows.push_back({Role::kScratch, kWrite, Presence::kSometimes, false, "if the pass needs scratch"});
  return rows;
}

std::vector<OperandRow> RowsOf(Opcode opcode) {
  constexpr auto kOnce = Presence::kOnce;
  constexpr auto kEach = Presence::kEach;
  constexpr auto kOneOf = Presence::kOneOf;
  constexpr auto kSometimes = Presence::kSometimes;
  switch (opcode) {
    case Opcode::kLoadInputs:
    case Opcode::kLoadBatch:
      return {{Role::kSource, kRead}, {Role::kCopy, kWrite}};
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      return Pass(opcode);
    case Opcode::kSend:
      return {{Role::kValue, kRead, kOneOf}, {Role::kGradient, kRead, kOneOf}};
    case Opcode::kReceive:
      return {{Role::kValue, kWrite, kOneOf}, {Role::kGradient, kWrite, kOneOf}};
    case Opcode::kHostWait:
      return {{Role::kValue, kRead}};
    case Opcode::kUnshard:
    case Opcode::kUnshardOuter:
      return {{Role::kShard, kRead}, {Role::kGathered, kWrite}};
    case Opcode::kZero:
      return {{Role::kContribution, kWrite}};
    case Opcode::kRound:
      return {{Role::kCollected, kRead}, {Role::kContribution, kWrite}};
    case Opcode::kAccumulate:
      return {{Role::kContribution, kRead}, {Role::kSum, kWrite | kAdd}};
    case Opcode::kReduceGradients:
      return {{Role::kContribution, kRead, kOneOf},
              {Role::kSum, kRead, kOneOf},
              {Role::kStaging, kWrite, kSometimes, false, "unless the rank is alone on the axis"},
              {Role::kReduced, kWrite | kAdd},
              {Role::kNormTerms, kWrite, kSometimes, false,
               "in the run's last one of a unit without outer stage"}};
    case Opcode::kReduceOuter:
      return {{Role::kReduced, kAdd}, {Role::kStaging, kWrite}, {Role::kNormTerms, kWrite}};
    case Opcode::kGradientNorm:
      return {{Role::kNormTerms, kRead, kEach}, {Role::kInputs, kRead}, {Role::kOutcome, kWrite}};
    case Opcode::kOptimizerStep:
      return {{Role::kReduced, kRead},
              {Role::kOutcome, kRead, kOnce, kFormer},
              {Role::kInputs, kRead},
              {Role::kWeights, kAdd},
              {Role::kOptimizerState, kAdd},
              {Role::kPublished, kWrite, kSometimes, false, "if the compute type is not the main type"},
              {Role::kUpdateNorms, kWrite, kSometimes, false, "if update norms are wanted"},
              {Role::kScratch, kWrite, kSometimes, false, "if the update needs scratch"}};
    case Opcode::kUpdateStates:
      return {{Role::kOutcome, kRead, kOnce, kFormer},
              {Role::kCounter, kAdd, kEach},
              {Role::kState, kAdd, kEach},
              {Role::kScratch, kWrite}};
    case Opcode::kCopy:
    case Opcode::kReport:
    case Opcode::kSnapshot:
      return {{Role::kSource, kRead, kEach}, {Role::kCopy, kWrite, kEach}};
  }
  platform::CheckFailed(__FILE__, __LINE__, "opcode", "every opcode has a signature");
}

}  // namespace

const std::vector<OperandRow>& SignatureOf(Opcode opcode) {
  static const std::vector<std::vector<OperandRow>>* const all = [] {
    auto* rows = new std::vector<std::vector<OperandRow>>();
    for (int i = 0; i < kNumOpcodes; ++i) {
      rows->push_back(RowsOf(static_cast<Opcode>(i)));
    }
    return rows;
  }();
  return all->at(static_cast<size_t>(opcode));
}

const char* ToText(Role role) { return kRoles.at(static_cast<size_t>(role)); }

std::vector<Operand> MakeOperands(Opcode opcode, const std::vector<NamedOperand>& named, bool first) {
  std::vector<Operand> operands;
  for (const OperandRow& row : SignatureOf(opcode)) {
    const bool writes = Allows(row.modes, static_cast<int>(Mode::kWrites));
    const bool adds = Allows(row.modes, static_cast<int>(Mode::kAdds)) && !(first && writes);
    const Mode mode = adds ? Mode::kAdds : writes ? Mode::kWrites : Mode::kReads;
    const size_t before = operands.size();
    for (const NamedOperand& operand : named) {
      if (operand.role == row.role && operand.buffer >= 0) {
        operands.push_back({operand.buffer, operand.part, mode, row.former, row.role});
      }
    }
    const size_t found = operands.size() - before;
    TANDEM_CHECK(
        row.presence == Presence::kEach || found == 1 || (found == 0 && row.presence != Presence::kOnce),
        absl::StrCat(InfoOf(opcode).name, " has one ", ToText(row.role)));
  }
  TANDEM_CHECK(std::ssize(operands) == std::count_if(named.begin(), named.end(),
                                                     [](const NamedOperand& o) { return o.buffer >= 0; }),
               absl::StrCat(InfoOf(opcode).name, " has no operands but those of its signature"));
  return operands;
}

const Operand* Find(const Instruction& instruction, Role role) {
  const auto found = std::find_if(instruction.operands.begin(), instruction.operands.end(),
                                  [&](const Operand& operand) { return operand.role == role; });
  return found == instruction.operands.end() ? nullptr : &*found;
}

}  // namespace tandem::schedules
