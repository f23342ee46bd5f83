#include "schedules/lifetimes.h"

#include "absl/strings/str_cat.h"
#include "schedules/access.h"
#include "schedules/hygiene.h"
#include "schedules/operands.h"
#include "schedules/text.h"

namespace tandem::schedules {
namespace {

#define TANDEM_RETURN_IF_ERROR(expression)                \
  if (absl::Status status = (expression); !status.ok()) { \
    return status;                                        \
  }

std::vector<std::vector<int>> Unheld(const std::vector<int>& counts) {
  std::vector<std::vector<int>> holders;
  for (const int count : counts) {
    holders.emplace_back(count, -1);
  }
  return holders;
}

}  // namespace

Lifetimes::Lifetimes(const Outline& outline, const Program& program)
    : outline_(outline),
      program_(program),
      lives_(static_cast<size_t>(2) * outline.values.size() * program.num_microbatches),
      parameters_(outline.units.size()),
      gradients_(outline.units.size()),
      holders_{Unheld(program.parameter_slots), Unheld(program.gradient_slots)},
      reductions_(outline.units.size() * program.num_microbatches, -1),
      steps_(outline.units.size(), -1) {
  for (size_t unit = 0; unit < outline.units.size(); ++unit) {
    const size_t parts = outline.units[unit].parts.size();
    expected_.emplace_back(parts, 0);
    gradients_[unit].writes.assign(parts, 0);
    gradients_[unit].written.assign(parts, -1);
  }
  for (const Node& node : outline.nodes) {
    for (const UnitPart& part : node.backward.parameter_gradients) {
      ++expected_[part.unit][part.part];
    }
  }
}

std::string Lifetimes::Text(int i, absl::string_view what, int other, absl::string_view rest) const {
  return absl::StrCat(DescribeInstruction(outline_, program_, i), " ", what, other >= 0 ? " " : "",
                      other >= 0 ? DescribeInstruction(outline_, program_, other) : "", rest);
}

absl::Status Lifetimes::Refuse(int i, absl::string_view what, int other, absl::string_view rest) const {
  return absl::InvalidArgumentError(Text(i, what, other, rest));
}

absl::Status Lifetimes::RefuseBy(absl::string_view hygiene_rule, int i, absl::string_view what, int other,
                                 absl::string_view rest) const {
  return RefusedByHygiene(hygiene_rule, Text(i, what, other, rest));
}

// Instruction i adds to a gradient that `before` contributed to last.
absl::Status Lifetimes::CheckFoldOrder(int i, int before, absl::string_view name) const {
  if (before >= 0 && program_.instructions[i].target > program_.instructions[before].target) {
    return Refuse(i, absl::StrCat("adds to the gradient of ", name, " after"), before,
                  ", but contributions are added in the reverse order of the nodes");
  }
  return absl::OkStatus();
}

Lifetimes::Life& Lifetimes::LifeOf(ValueId value, int microbatch, bool of_gradient) {
  return lives_[(2 * microbatch + of_gradient) * outline_.values.size() + value];
}

int& Lifetimes::Holder(const SlotUse& slot) {
  return holders_[static_cast<int>(slot.role)][slot.size_class][slot.index];
}

int& Lifetimes::Reduction(UnitId unit, int microbatch) {
  return reductions_[unit * program_.num_microbatches + microbatch];
}

absl::Status Lifetimes::Apply(int i) {
  const Instruction& instruction = program_.instructions[i];
  switch (instruction.opcode) {
    case Opcode::kLoadBatch:
      load_ = load_ < 0 ? i : load_;
      return WriteValue(i, instruction.target);
    case Opcode::kForward:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      return ApplyNode(i);
    case Opcode::kUnshard:
      return ApplyUnshard(i);
    case Opcode::kReshard:
      return ApplyReshard(i);
    case Opcode::kReduceGradients:
      return ApplyReduce(i);
    case Opcode::kGradientNorm:
      return ApplyNorm(i);
    case Opcode::kOptimizerStep:
      return ApplyStep(i);
    case Opcode::kReport:
      return ApplyReport(i);
    case Opcode::kSnapshot:
      return ApplySnapshot(i);
    case Opcode::kRelease:
      return ApplyRelease(i);
  }
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyNode(int i) {
  const Instruction& instruction = program_.instructions[i];
  const Access& access = AccessOf(outline_.nodes[instruction.target], instruction.opcode);
  for (const ValueId value : access.reads) {
    TANDEM_RETURN_IF_ERROR(ReadValue(i, value, instruction.microbatch, false));
  }
  for (const ValueId value : access.writes) {
    TANDEM_RETURN_IF_ERROR(WriteValue(i, value));
  }
  for (const ValueId value : access.gradient_reads) {
    TANDEM_RETURN_IF_ERROR(ReadValue(i, value, instruction.microbatch, true));
  }
  for (size_t k = 0; k < access.gradient_writes.size(); ++k) {
    TANDEM_RETURN_IF_ERROR(
        WriteValueGradient(i, access.gradient_writes[k], instruction.add_value_gradients[k]));
  }
  for (const SlotUse& slot : instruction.slots) {
    TANDEM_RETURN_IF_ERROR(slot.role == SlotRole::kParameters ? UseParameters(i, slot)
                                                              : OpenGradientSlot(i, slot));
  }
  for (size_t k = 0; k < access.parameter_gradients.size(); ++k) {
    TANDEM_RETURN_IF_ERROR(
        WriteParameterGradient(i, access.parameter_gradients[k], instruction.add_parameter_gradients[k]));
  }
  return absl::OkStatus();
}

absl::Status Lifetimes::ReadValue(int i, ValueId value, int microbatch, bool of_gradient) {
  Life& life = LifeOf(value, microbatch, of_gradient);
  if (life.state == State::kNever || life.state == State::kClosed) {
    const std::string name = absl::StrCat("reads ", of_gradient ? "the gradient of " : "",
                                          outline_.values[value].name, " mb ", microbatch);
    return life.state == State::kNever ? Refuse(i, absl::StrCat(name, ", which nothing has written"), -1)
                                       : Refuse(i, absl::StrCat(name, " after"), life.last);
  }
  life.state = State::kRead;
  life.last = i;
  return absl::OkStatus();
}

absl::Status Lifetimes::WriteValue(int i, ValueId value) {
  Life& life = LifeOf(value, program_.instructions[i].microbatch, false);
  if (life.state != State::kNever) {
    return Refuse(i, absl::StrCat("writes ", outline_.values[value].name, " a second time, after"),
                  life.opened);
  }
  life = {State::kOpen, i, i, i};
  return absl::OkStatus();
}

absl::Status Lifetimes::WriteValueGradient(int i, ValueId value, bool add) {
  Life& life = LifeOf(value, program_.instructions[i].microbatch, true);
  const std::string& name = outline_.values[value].name;
  switch (life.state) {
    case State::kNever:
      if (add) {
        return Refuse(i, absl::StrCat("adds to the gradient of ", name, ", which nothing has written"), -1);
      }
      life = {State::kOpen, i, i, i};
      return absl::OkStatus();
    case State::kOpen:
      if (!add) {
        return Refuse(i, absl::StrCat("overwrites the gradient of ", name, " of"), life.last);
      }
      TANDEM_RETURN_IF_ERROR(CheckFoldOrder(i, life.written, name));
      life.last = i;
      life.written = i;
      return absl::OkStatus();
    case State::kRead:
      return Refuse(i, absl::StrCat("writes the gradient of ", name, " after it was read by"), life.last);
    case State::kClosed:
      return Refuse(i, absl::StrCat("writes the gradient of ", name, " after"), life.last);
  }
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyReport(int i) {
  if (report_ >= 0) {
    return Refuse(i, "comes after", report_, "; a program reports once");
  }
  report_ = i;
  for (int microbatch = 0; microbatch < program_.num_microbatches; ++microbatch) {
    TANDEM_RETURN_IF_ERROR(ReadValue(i, outline_.loss, microbatch, false));
  }
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyRelease(int i) {
  const Instruction& instruction = program_.instructions[i];
  Life& life = LifeOf(instruction.target, instruction.microbatch, instruction.of_gradient);
  if (life.state == State::kNever) {
    return Refuse(i, "releases what nothing has written", -1);
  }
  if (life.state == State::kClosed) {
    return Refuse(i, "comes after", life.last);
  }
  const StreamKind allocated = program_.instructions[life.opened].stream;
  if (instruction.stream != allocated) {
    return RefuseBy(hygiene::kReleaseStream, i,
                    absl::StrCat("is on stream ", ToText(instruction.stream), ", but the memory is of"),
                    life.opened, absl::StrCat(" on stream ", ToText(allocated)));
  }
  life.state = State::kClosed;
  life.last = i;
  return absl::OkStatus();
}

absl::Status Lifetimes::UseParameters(int i, const SlotUse& slot) {
  const Lease& lease = parameters_[slot.unit];
  const std::string use = absl::StrCat("uses ", outline_.units[slot.unit].name, " in slot ", ToText(slot));
  if (lease.opened < 0) {
    return lease.closed < 0 ? Refuse(i, absl::StrCat(use, ", where nothing has gathered it"), -1)
                            : Refuse(i, absl::StrCat(use, " after"), lease.closed);
  }
  if (!(lease.slot == slot)) {
    return Refuse(i, absl::StrCat(use, ", but"), lease.opened,
                  absl::StrCat(" gathered it in ", ToText(lease.slot)));
  }
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyUnshard(int i) {
  const Instruction& instruction = program_.instructions[i];
  const SlotUse& slot = instruction.slots.front();
  Lease& lease = parameters_[instruction.target];
  if (lease.opened >= 0) {
    return RefuseBy(hygiene::kNeverClosed, i, "gathers a unit that is still gathered by", lease.opened);
  }
  if (const int holder = Holder(slot); holder >= 0) {
    return RefuseBy(hygiene::kNeverClosed, i,
                    absl::StrCat("gathers into ", ToText(slot), ", which is still in use since"),
                    parameters_[holder].opened);
  }
  if (steps_[instruction.target] >= 0) {
    return RefuseBy(hygiene::kGatherAfterStep, i, "gathers weights that belong to the next step, after",
                    steps_[instruction.target]);
  }
  Holder(slot) = instruction.target;
  lease.opened = i;
  lease.slot = slot;
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyReshard(int i) {
  const Instruction& instruction = program_.instructions[i];
  const int holder = Holder(instruction.slots.front());
  if (holder >= 0 && holder != instruction.target) {
    return RefuseBy(hygiene::kLabel, i,
                    absl::StrCat("frees slot ", ToText(instruction.slots.front()), ", but it holds what"),
                    parameters_[holder].opened, " gathered");
  }
  TANDEM_RETURN_IF_ERROR(UseParameters(i, instruction.slots.front()));
  Lease& lease = parameters_[instruction.target];
  Holder(lease.slot) = -1;
  lease.opened = -1;
  lease.closed = i;
  return absl::OkStatus();
}

absl::Status Lifetimes::OpenGradientSlot(int i, const SlotUse& slot) {
  const int microbatch = program_.instructions[i].microbatch;
  const std::string& name = outline_.units[slot.unit].name;
  Lease& lease = gradients_[slot.unit];
  if (const int reduced = Reduction(slot.unit, microbatch); reduced >= 0) {
    return Refuse(i, absl::StrCat("contributes to the gradient of ", name, " after"), reduced);
  }
  if (lease.opened < 0) {
    if (const int holder = Holder(slot); holder >= 0) {
      return Refuse(i, absl::StrCat("collects gradients in ", ToText(slot), ", which is still in use since"),
                    gradients_[holder].opened);
    }
    Holder(slot) = slot.unit;
    lease.opened = i;
    lease.microbatch = microbatch;
    lease.slot = slot;
    return absl::OkStatus();
  }
  if (!(lease.slot == slot)) {
    return Refuse(i, absl::StrCat("collects the gradient of ", name, " in ", ToText(slot), ", but"),
                  lease.opened, absl::StrCat(" collects it in ", ToText(lease.slot)));
  }
  if (lease.microbatch != microbatch) {
    return Refuse(i, absl::StrCat("contributes to the gradient of ", name, " before the reduction of"),
                  lease.opened);
  }
  return absl::OkStatus();
}

absl::Status Lifetimes::WriteParameterGradient(int i, UnitPart part, bool add) {
  Lease& lease = gradients_[part.unit];
  int& writes = lease.writes[part.part];
  const Unit& unit = outline_.units[part.unit];
  if (add != (writes > 0)) {
    return Refuse(i,
                  absl::StrCat(add ? "adds to" : "overwrites", " the gradient of ", unit.name, ".",
                               unit.parts[part.part],
                               add ? ", which nothing has written since the lease began at"
                                   : ", which was written since the lease began at"),
                  lease.opened);
  }
  TANDEM_RETURN_IF_ERROR(
      CheckFoldOrder(i, lease.written[part.part], absl::StrCat(unit.name, ".", unit.parts[part.part])));
  ++writes;
  lease.written[part.part] = i;
  return absl::OkStatus();
}

int Lifetimes::LaterContribution(UnitPart part, int microbatch, int after) const {
  for (int i = after + 1; i < static_cast<int>(program_.instructions.size()); ++i) {
    const Instruction& instruction = program_.instructions[i];
    if (TargetsNode(instruction.opcode) && instruction.microbatch == microbatch) {
      for (const UnitPart& other :
           AccessOf(outline_.nodes[instruction.target], instruction.opcode).parameter_gradients) {
        if (other == part) {
          return i;
        }
      }
    }
  }
  return -1;
}

absl::Status Lifetimes::ApplyReduce(int i) {
  const Instruction& instruction = program_.instructions[i];
  const UnitId unit = instruction.target;
  Lease& lease = gradients_[unit];
  int& reduction = Reduction(unit, instruction.microbatch);
  if (lease.opened < 0) {
    return reduction >= 0 ? Refuse(i, "reduces a second time, after", reduction)
                          : Refuse(i, "reduces what nothing has contributed to", -1);
  }
  if (!(lease.slot == instruction.slots.front())) {
    return Refuse(i,
                  absl::StrCat("reduces slot ", ToText(instruction.slots.front()),
                               ", but the gradient is in ", ToText(lease.slot), " since"),
                  lease.opened);
  }
  if (lease.microbatch != instruction.microbatch) {
    return RefuseBy(
        hygiene::kLabel, i,
        absl::StrCat("says another microbatch than ", lease.microbatch, ", which contributes since"),
        lease.opened);
  }
  for (int part = 0; part < static_cast<int>(lease.writes.size()); ++part) {
    if (lease.writes[part] != expected_[unit][part]) {
      const int later = LaterContribution({unit, part}, instruction.microbatch, i);
      const std::string what = absl::StrCat(
          "reduces with ", lease.writes[part], " of ", expected_[unit][part], " contributions to ",
          outline_.units[unit].name, ".", outline_.units[unit].parts[part], later >= 0 ? ", before" : "");
      return Refuse(i, what, later);
    }
  }
  // The shard's first contribution of the step overwrites.
  int former = -1;
  for (int microbatch = 0; microbatch < program_.num_microbatches; ++microbatch) {
    former = std::max(former, Reduction(unit, microbatch));
    if (Reduction(unit, microbatch) >= 0 && microbatch > instruction.microbatch) {
      return Refuse(i, "comes after", Reduction(unit, microbatch),
                    "; contributions are added in the order of the microbatches");
    }
  }
  const bool add = instruction.add_parameter_gradients.front();
  if (add != (former >= 0)) {
    return add ? Refuse(i, "adds to a gradient shard that nothing has written in this step", -1)
               : Refuse(i, "overwrites the gradient shard of", former);
  }
  reduction = i;
  Holder(lease.slot) = -1;
  lease.opened = -1;
  lease.closed = i;
  lease.writes.assign(lease.writes.size(), 0);
  lease.written.assign(lease.written.size(), -1);
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyNorm(int i) {
  if (norm_ >= 0) {
    return Refuse(i, "comes after", norm_);
  }
  if (report_ >= 0) {
    return Refuse(i, "comes after", report_, ", which reads its result");
  }
  for (UnitId unit = 0; unit < static_cast<int>(outline_.units.size()); ++unit) {
    for (int microbatch = 0; microbatch < program_.num_microbatches; ++microbatch) {
      if (Reduction(unit, microbatch) < 0) {
        return Refuse(
            i, absl::StrCat("comes before the reduction of ", outline_.units[unit].name, " mb ", microbatch),
            gradients_[unit].opened);
      }
    }
  }
  norm_ = i;
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyStep(int i) {
  const UnitId unit = program_.instructions[i].target;
  if (norm_ < 0) {
    return Refuse(i, "comes before the gradient norm", -1);
  }
  if (steps_[unit] >= 0) {
    return Refuse(i, "comes after", steps_[unit]);
  }
  if (parameters_[unit].opened >= 0) {
    return RefuseBy(hygiene::kNeverClosed, i, "changes weights that are gathered by",
                    parameters_[unit].opened);
  }
  if (report_ >= 0) {
    return Refuse(i, "comes after", report_, ", which reads its result");
  }
  if (snapshot_ >= 0) {
    return Refuse(i, "is in one program with", snapshot_, "; a snapshot is a program of its own");
  }
  steps_[unit] = i;
  step_ = i;
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplySnapshot(int i) {
  if (snapshot_ >= 0) {
    return Refuse(i, "comes after", snapshot_, "; a program takes one snapshot");
  }
  if (step_ >= 0) {
    return Refuse(i, "is in one program with", step_, "; a snapshot is a program of its own");
  }
  snapshot_ = i;
  return absl::OkStatus();
}

absl::Status Lifetimes::End() {
  for (size_t index = 0; index < lives_.size(); ++index) {
    const Life& life = lives_[index];
    if (life.state == State::kOpen || life.state == State::kRead) {
      const size_t values = outline_.values.size();
      return RefuseBy(
          hygiene::kNeverClosed, life.opened,
          absl::StrCat("writes ", index / values % 2 == 1 ? "the gradient of " : "",
                       outline_.values[index % values].name, ", which is never released; it is used last by"),
          life.last);
    }
  }
  for (UnitId unit = 0; unit < static_cast<int>(outline_.units.size()); ++unit) {
    if (parameters_[unit].opened >= 0) {
      return RefuseBy(hygiene::kNeverClosed, parameters_[unit].opened,
                      "gathers a unit that is never resharded", -1);
    }
    if (gradients_[unit].opened >= 0) {
      return Refuse(gradients_[unit].opened, "contributes to a gradient that is never reduced", -1);
    }
    if (gradients_[unit].closed >= 0 && steps_[unit] < 0) {
      return Refuse(gradients_[unit].closed, "reduces a gradient that no optimizer step uses", -1);
    }
  }
  if (load_ >= 0 && report_ < 0) {
    return Refuse(load_, "loads what no report tells the loss of", -1);
  }
  return absl::OkStatus();
}

#undef TANDEM_RETURN_IF_ERROR

}  // namespace tandem::schedules
