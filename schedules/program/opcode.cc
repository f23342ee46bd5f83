#include "schedules/program/opcode.h"

#include <array>

#include "platform/check.h"

namespace tandem::schedules {
namespace {

constexpr std::array<OpcodeInfo, kNumOpcodes> kOpcodes = {{
    {Opcode::kLoadInputs, "load-inputs", TargetKind::kNone, false},
    {Opcode::kLoadBatch, "load", TargetKind::kValue, true},
    {Opcode::kForward, "forward", TargetKind::kNode, true},
    {Opcode::kRecompute, "recompute", TargetKind::kNode, true},
    {Opcode::kBackward, "backward", TargetKind::kNode, true},
    {Opcode::kBackwardInput, "backward-input", TargetKind::kNode, true},
    {Opcode::kBackwardWeight, "backward-weight", TargetKind::kNode, true},
    {Opcode::kSend, "send", TargetKind::kValue, true},
    {Opcode::kReceive, "receive", TargetKind::kValue, true},
    {Opcode::kHostWait, "host-wait", TargetKind::kValue, true},
    {Opcode::kUnshard, "unshard", TargetKind::kUnit, false},
    {Opcode::kUnshardOuter, "unshard-outer", TargetKind::kUnit, false},
    {Opcode::kZero, "zero", TargetKind::kUnit, true},
    {Opcode::kRound, "round", TargetKind::kUnit, true},
    {Opcode::kAccumulate, "accumulate", TargetKind::kUnit, true},
    {Opcode::kReduceGradients, "reduce", TargetKind::kUnit, false},
    {Opcode::kReduceOuter, "reduce-outer", TargetKind::kUnit, false},
    {Opcode::kGradientNorm, "gradient-norm", TargetKind::kNone, false},
    {Opcode::kOptimizerStep, "optimizer", TargetKind::kUnit, false},
    {Opcode::kReport, "report", TargetKind::kNone, false},
    {Opcode::kFill, "fill", TargetKind::kNone, false},
}};

}  // namespace

const OpcodeInfo& InfoOf(Opcode opcode) {
  const size_t row = static_cast<size_t>(opcode);
  TANDEM_CHECK(row < kOpcodes.size() && kOpcodes[row].opcode == opcode, "every opcode has its row");
  return kOpcodes[row];
}

}  // namespace tandem::schedules
