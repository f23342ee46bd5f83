// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/check.h"
#include "schedules/passes/contributions.h"
#include "schedules/passes/passes.h"
#include "schedules/program/pass_operand.h"
#include "schedules/program/signature.h"
#include "schedules/program/text.h"

namespace tandem::schedules {
namespace {

class Expander {
 public:
  Expander(const Outline& outline, const StageFrame& frame, const std::vector<bool>& recompute,
           int num_microbatches, bool trains)
      : outline_(outline),
        frame_(frame),
        recompute_(recompute),
        trains_(trains),
        num_values_(outline.values.size()) {
    program_.num_microbatches = num_microbatches;
    program_.streams = frame.streams;
    program_.communicators = frame.communicators;
    program_.buffers = frame.buffers;
    values_.assign(num_values_ * num_microbatches, -1);
    gradients_.assign(num_values_ * num_microbatches, -1);
    waited_.assign(num_values_ * num_microbatches, false);
    loaded_.assign(num_microbatches, outline.batch < 0);
    carried_.assign(outline.states.size(), false);
  }

  Program Run(const PassList& passes) {
    for (const NodePass& pass : passes) {
      Load(pass.microbatch);
      if (pass.opcode == Opcode::kSend || pass.opcode == Opcode::kReceive) {
        AddExchange(pass);
      } else {
        Pass(pass);
      }
    }
    return std::move(program_);
  }

 private:
  size_t Index(ValueId value, int microbatch) const { return microbatch * num_values_ + value; }

  void Load(int microbatch) {
    if (loaded_[microbatch]) {
      return;
    }
    loaded_[microbatch] = true;
    program_.instructions.push_back(
        {.opcode = Opcode::kLoadBatch,
         .target = outline_.batch,
         .microbatch = microbatch,
         .stream = frame_.host_to_device,
         .operands = MakeOperands(Opcode::kLoadBatch, {{Role::kSource, frame_.host_batch, microbatch},
                                                       {Role::kCopy, frame_.batch, microbatch}})});
  }

  Operand Read(ValueId value, int microbatch) const {
    if (value == outline_.batch) {
      return {frame_.batch, microbatch, Mode::kReads};
    }
    if (frame_.losses[value] >= 0) {
      return {frame_.losses[value], microbatch, Mode::kReads};
    }
    const BufferId buffer = values_[Index(value, microbatch)];
    TANDEM_CHECK(buffer >= 0, absl::StrCat(outline_.values[value].name, " is read before it is written"));
    return {buffer, -1, Mode::kReads};
  }

  Operand Write(ValueId id, int microbatch, bool again) {
    if (frame_.losses[id] >= 0) {
      return {frame_.losses[id], microbatch, Mode::kWrites};
    }
    const Value& value = outline_.values[id];
    BufferId& buffer = values_[Index(id, microbatch)];
    TANDEM_CHECK(again == (buffer >= 0), absl::StrCat(value.name, " has one producer"));
    const BufferKind kinds[] = {BufferKind::kActivation, BufferKind::kAllToAll, BufferKind::kSizes};
    buffer = AddBuffer(program_, absl::StrCat(value.name, again ? " again mb " : " mb ", microbatch),
                       kinds[static_cast<int>(value.kind)], id, microbatch, value.bytes);
    return {buffer, -1, Mode::kWrites};
  }

  Operand ReadGradient(ValueId value, int microbatch) const {
    const BufferId buffer = gradients_[Index(value, microbatch)];
    TANDEM_CHECK(buffer >= 0, absl::StrCat("the gradient of ", outline_.values[value].name,
                                           " is read before it is written"));
    return {buffer, -1, Mode::kReads};
  }

  Operand WriteGradient(ValueId value, int microbatch) {
    BufferId& buffer = gradients_[Index(value, microbatch)];
    if (buffer >= 0) {
      return {buffer, -1, Mode::kAdds};
    }
    buffer =
        AddBuffer(program_, absl::StrCat("d(", outline_.values[value].name, ") mb ", microbatch),
                  BufferKind::kActivationGradient, value, microbatch, outline_.values[value].gradient_bytes);
    return {buffer, -1, Mode::kWrites};
  }

  // The host has read what `reads` names of that kind.
  void WaitOnHost(const std::vector<ValueId>& reads, int microbatch) {
    for (const ValueId value : reads) {
      if (outline_.values[value].kind == ValueKind::kHost && !waited_[Index(value, microbatch)]) {
        waited_[Index(value, microbatch)] = true;
        program_.instructions.push_back({.opcode = Opcode::kHostWait,
                                         .target = value,
                                         .microbatch = microbatch,
                                         .stream = frame_.host,
                                         .operands = {Read(value, microbatch)}});
      }
    }
  }

  void Pass(const NodePass& pass) {
    const Node& node = outline_.nodes[pass.target];
    const bool weight = pass.opcode == Opcode::kBackwardWeight;
    WaitOnHost(AccessOf(node, pass.opcode).reads, pass.microbatch);
    Instruction instruction{.opcode = pass.opcode,
                            .target = pass.target,
                            .microbatch = pass.microbatch,
                            .stream = (weight ? frame_.weight_streams : frame_.node_streams)[pass.target],
                            .communicator = frame_.node_communicators[pass.target]};
    ListOperands(node, pass.opcode, recompute_, trains_, operands_);
    instruction.operands.reserve(operands_.size());
    for (const PassOperand& operand : operands_) {
      instruction.operands.push_back(OperandOf(operand, pass));
      instruction.operands.back().role = operand.role;
    }
    program_.instructions.push_back(std::move(instruction));
  }

  Operand OperandOf(const PassOperand& operand, const NodePass& pass) {
    const bool reads = operand.mode == Mode::kReads;
    switch (operand.role) {
      case Role::kValue:
        return reads ? Read(operand.id, pass.microbatch)
                     : Write(operand.id, pass.microbatch, pass.opcode == Opcode::kRecompute);
      case Role::kGradient:
        return reads ? ReadGradient(operand.id, pass.microbatch) : WriteGradient(operand.id, pass.microbatch);
      case Role::kParameters:
      case Role::kParameterGradient:
        return {-1, operand.part, operand.mode};
      case Role::kState:
        return {frame_.states[operand.id], -1, operand.mode};
      case Role::kCarriedState: {
        const bool first = !carried_[operand.id];
        carried_[operand.id] = true;
        return {frame_.states[operand.id], -1, first ? Mode::kWrites : Mode::kAdds};
      }
      case Role::kInputs:
        return {frame_.inputs, -1, Mode::kReads};
      default:
        TANDEM_CHECK(operand.role == Role::kScratch, "a pass of a node has no other operands");
    }
    const Node& node = outline_.nodes[pass.target];
    return {
        AddBuffer(program_,
                  absl::StrCat("scratch of ", ToText(pass.opcode), " ", node.name, " mb ", pass.microbatch),
                  BufferKind::kScratch, pass.target, pass.microbatch, AccessOf(node, pass.opcode).scratch),
        -1, Mode::kWrites};
  }

  void AddExchange(const NodePass& pass) {
    const bool sends = pass.opcode == Opcode::kSend;
    // A gradient goes the other way.
    const std::vector<Boundary>& boundaries = sends == pass.gradient ? outline_.received : outline_.sent;
    const Exchange& exchange = sends ? (pass.gradient ? frame_.gradient_sends : frame_.sends)
                                     : (pass.gradient ? frame_.gradient_receives : frame_.receives);
    size_t i = 0;
    while (i < boundaries.size() && boundaries[i].value != pass.target) {
      ++i;
    }
    TANDEM_CHECK(i < boundaries.size(), "what is exchanged is at the stage's boundary");
    const PassOperand exchanged{.role = pass.gradient ? Role::kGradient : Role::kValue,
                                .id = pass.target,
                                .mode = sends ? Mode::kReads : Mode::kWrites};
    program_.instructions.push_back({.opcode = pass.opcode,
                                     .target = pass.target,
                                     .microbatch = pass.microbatch,
                                     .stream = exchange.stream,
                                     .communicator = exchange.communicators[i],
                                     .operands = {OperandOf(exchanged, pass)}});
    program_.instructions.back().operands.front().role = exchanged.role;
  }

  const Outline& outline_;
  const StageFrame& frame_;
  const std::vector<bool>& recompute_;
  const bool trains_;
  const size_t num_values_;
  std::vector<BufferId> values_;  // microbatch, value → the buffer that readers see now
  std::vector<BufferId> gradients_;
  std::vector<bool> waited_;
  std::vector<bool> loaded_;
  std::vector<bool> carried_;          // states that some microbatch has left something in
  std::vector<PassOperand> operands_;  // of the pass at hand
  Program program_;
};

}  // namespace

Program ExpandPasses(const Outline& outline, const StageFrame& frame, const std::vector<bool>& recompute,
                     const PassList& passes, int num_microbatches, bool trains) {
  return Expander(outline, frame, recompute, num_microbatches, trains).Run(passes);
}

}  // namespace tandem::schedules
