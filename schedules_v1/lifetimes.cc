#include "schedules_v1/lifetimes.h"

#include "absl/strings/str_cat.h"
#include "schedules_v1/access.h"
#include "schedules_v1/hygiene.h"

namespace tandem::schedules_v1 {

#define TANDEM_RETURN_IF_ERROR(expression)                \
  if (absl::Status status = (expression); !status.ok()) { \
    return status;                                        \
  }

Lifetimes::Lifetimes(const Outline& outline, const Program& program)
    : outline_(outline),
      program_(program),
      refuse_(outline, program),
      values_(outline, program, refuse_),
      units_(outline, program, refuse_),
      steps_(outline.units.size(), -1) {}

absl::Status Lifetimes::Apply(int i) {
  switch (program_.instructions[i].opcode) {
    case Opcode::kLoadBatch:
      load_ = load_ < 0 ? i : load_;
      return values_.Write(i, program_.instructions[i].target);
    case Opcode::kForward:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      return ApplyNode(i);
    case Opcode::kUnshard:
      return ApplyUnshard(i);
    case Opcode::kReshard:
      return units_.Reshard(i);
    case Opcode::kReduceGradients:
      return units_.ReduceGradients(i);
    case Opcode::kGradientNorm:
      return ApplyNorm(i);
    case Opcode::kOptimizerStep:
      return ApplyStep(i);
    case Opcode::kReport:
      return ApplyReport(i);
    case Opcode::kSnapshot:
      return ApplySnapshot(i);
    case Opcode::kRelease:
      return values_.Release(i);
  }
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyNode(int i) {
  const Instruction& instruction = program_.instructions[i];
  const Access& access = AccessOf(outline_.nodes[instruction.target], instruction.opcode);
  for (const ValueId value : access.reads) {
    TANDEM_RETURN_IF_ERROR(values_.Read(i, value, instruction.microbatch));
  }
  for (const ValueId value : access.writes) {
    TANDEM_RETURN_IF_ERROR(values_.Write(i, value));
  }
  for (const ValueId value : access.gradient_reads) {
    TANDEM_RETURN_IF_ERROR(values_.ReadGradient(i, value));
  }
  for (size_t k = 0; k < access.gradient_writes.size(); ++k) {
    TANDEM_RETURN_IF_ERROR(
        values_.WriteGradient(i, access.gradient_writes[k], instruction.add_value_gradients[k]));
  }
  for (const SlotUse& slot : instruction.slots) {
    TANDEM_RETURN_IF_ERROR(slot.role == SlotRole::kParameters ? units_.UseParameters(i, slot)
                                                              : units_.OpenGradients(i, slot));
  }
  for (size_t k = 0; k < access.parameter_gradients.size(); ++k) {
    TANDEM_RETURN_IF_ERROR(
        units_.WritePart(i, access.parameter_gradients[k], instruction.add_parameter_gradients[k]));
  }
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyUnshard(int i) {
  if (const int step = steps_[program_.instructions[i].target]; step >= 0) {
    return refuse_.ByHygiene(hygiene::kGatherAfterStep, i,
                             "gathers weights that belong to the next step, after", step);
  }
  return units_.Unshard(i);
}

absl::Status Lifetimes::ApplyNorm(int i) {
  if (norm_ >= 0) {
    return refuse_.Of(i, "comes after", norm_, "; a step has one norm");
  }
  if (report_ >= 0) {
    return refuse_.Of(i, "comes after", report_, ", which reads its result");
  }
  if (program_.num_microbatches == 0) {
    return refuse_.Of(i, "is of no microbatch");
  }
  for (UnitId unit = 0; unit < static_cast<int>(outline_.units.size()); ++unit) {
    for (int microbatch = 0; microbatch < program_.num_microbatches; ++microbatch) {
      if (units_.Reduction(unit, microbatch) < 0) {
        const int open = units_.ContributedBy(unit);
        return refuse_.Of(i,
                          absl::StrCat("comes before the reduction of ", outline_.units[unit].name, " mb ",
                                       microbatch, open >= 0 ? ", to which contributes" : ""),
                          open);
      }
    }
  }
  norm_ = i;
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyStep(int i) {
  const UnitId unit = program_.instructions[i].target;
  if (norm_ < 0) {
    return refuse_.Of(i, "comes before the gradient norm");
  }
  if (steps_[unit] >= 0) {
    return refuse_.Of(i, "comes after", steps_[unit], "; a unit is stepped once");
  }
  if (const int gather = units_.GatheredBy(unit); gather >= 0) {
    return refuse_.ByHygiene(hygiene::kNeverClosed, i, "changes weights that are gathered by", gather);
  }
  if (report_ >= 0) {
    return refuse_.Of(i, "comes after", report_, ", which reads its result");
  }
  if (snapshot_ >= 0) {
    return refuse_.Of(i, "is in one program with", snapshot_, "; a snapshot is a program of its own");
  }
  steps_[unit] = i;
  step_ = i;
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplyReport(int i) {
  if (report_ >= 0) {
    return refuse_.Of(i, "comes after", report_, "; a program reports once");
  }
  report_ = i;
  for (int microbatch = 0; microbatch < program_.num_microbatches; ++microbatch) {
    TANDEM_RETURN_IF_ERROR(values_.Read(i, outline_.loss, microbatch));
  }
  return absl::OkStatus();
}

absl::Status Lifetimes::ApplySnapshot(int i) {
  if (snapshot_ >= 0) {
    return refuse_.Of(i, "comes after", snapshot_, "; a program takes one snapshot");
  }
  if (step_ >= 0) {
    return refuse_.Of(i, "is in one program with", step_, "; a snapshot is a program of its own");
  }
  snapshot_ = i;
  return absl::OkStatus();
}

absl::Status Lifetimes::End() const {
  TANDEM_RETURN_IF_ERROR(values_.End());
  for (UnitId unit = 0; unit < static_cast<int>(outline_.units.size()); ++unit) {
    TANDEM_RETURN_IF_ERROR(units_.End(unit));
    if (const int reduction = units_.LastReduction(unit); reduction >= 0 && steps_[unit] < 0) {
      return refuse_.Of(reduction, "reduces a gradient that no optimizer step uses");
    }
  }
  if (load_ >= 0 && report_ < 0) {
    return refuse_.Of(load_, "loads what no report tells the loss of");
  }
  return absl::OkStatus();
}

#undef TANDEM_RETURN_IF_ERROR

}  // namespace tandem::schedules_v1
