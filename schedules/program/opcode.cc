// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/opcode.h"

#include <array>

#include "platform/check.h"

namespace tandem::schedules {
namespace {

constexpr std::array<OpcodeInfo, kNumOpcodes> kOpcodes = {{
    {Opcode::kLoadInputs, "load-inputs", TargetKind::kNone, false, MemoryRule::kOperands, LinkRule::kNone},
    {Opcode::kLoadBatch, "load", TargetKind::kValue, true, MemoryRule::kOperands, LinkRule::kNone},
    {Opcode::kForward, "forward", TargetKind::kNode, true, MemoryRule::kPass, LinkRule::kPass},
    {Opcode::kRecompute, "recompute", TargetKind::kNode, true, MemoryRule::kPass, LinkRule::kPass},
    {Opcode::kBackwardInput, "backward-input", TargetKind::kNode, true, MemoryRule::kPass, LinkRule::kPass},
    {Opcode::kBackwardWeight, "backward-weight", TargetKind::kNode, true, MemoryRule::kPass, LinkRule::kPass},
    {Opcode::kSend, "send", TargetKind::kValue, true, MemoryRule::kNone, LinkRule::kPeer},
    {Opcode::kReceive, "receive", TargetKind::kValue, true, MemoryRule::kNone, LinkRule::kPeer},
    {Opcode::kHostWait, "host-wait", TargetKind::kValue, true, MemoryRule::kNone, LinkRule::kNone},
    {Opcode::kUnshard, "unshard", TargetKind::kUnit, false, MemoryRule::kCopyAlone, LinkRule::kWritten},
    {Opcode::kUnshardOuter, "unshard-outer", TargetKind::kUnit, false, MemoryRule::kCopyAlone,
     LinkRule::kWritten},
    {Opcode::kZero, "zero", TargetKind::kUnit, true, MemoryRule::kOperands, LinkRule::kNone},
    {Opcode::kRound, "round", TargetKind::kUnit, true, MemoryRule::kOperands, LinkRule::kNone},
    {Opcode::kAccumulate, "accumulate", TargetKind::kUnit, true, MemoryRule::kOperands, LinkRule::kNone},
    {Opcode::kReduceGradients, "reduce", TargetKind::kUnit, false, MemoryRule::kOperands, LinkRule::kReduced},
    {Opcode::kReduceOuter, "reduce-outer", TargetKind::kUnit, false, MemoryRule::kOperands,
     LinkRule::kReducedOuter},
    {Opcode::kGradientNorm, "gradient-norm", TargetKind::kNone, false, MemoryRule::kOperands,
     LinkRule::kMessage},
    {Opcode::kOptimizerStep, "optimizer", TargetKind::kUnit, false, MemoryRule::kOperands, LinkRule::kNone},
    {Opcode::kUpdateStates, "update-states", TargetKind::kNone, false, MemoryRule::kOperands,
     LinkRule::kMessage},
    {Opcode::kCopy, "copy", TargetKind::kNone, true, MemoryRule::kOperands, LinkRule::kNone},
    {Opcode::kReport, "report", TargetKind::kNone, false, MemoryRule::kOperands, LinkRule::kNone},
    {Opcode::kSnapshot, "snapshot", TargetKind::kNone, false, MemoryRule::kOperands, LinkRule::kNone},
}};

}  // namespace

const OpcodeInfo& InfoOf(Opcode opcode) {
  const size_t row = static_cast<size_t>(opcode);
  TANDEM_CHECK(row < kOpcodes.size() && kOpcodes[row].opcode == opcode, "every opcode has its row");
  return kOpcodes[row];
}

}  // namespace tandem::schedules
