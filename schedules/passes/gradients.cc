// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/check.h"
#include "schedules/passes/contributions.h"
#include "schedules/passes/spans.h"
#include "schedules/program/pass_operand.h"
#include "schedules/program/unit_bytes.h"

namespace tandem::schedules {

BufferId AddBuffer(Program& program, std::string name, BufferKind kind, int subject, int microbatch,
                   Bytes bytes, std::vector<BufferPart> parts) {
  program.buffers.push_back({.name = std::move(name),
                             .kind = kind,
                             .subject = subject,
                             .microbatch = microbatch,
                             .life = Life::kLocal,
                             .bytes = bytes,
                             .parts = std::move(parts)});
  return static_cast<BufferId>(program.buffers.size()) - 1;
}

Contributions::Contributions(const Outline& outline, const BuildOptions& options, const StageFrame& frame,
                             const std::vector<Instruction>& passes, Program& program)
    : outline_(outline),
      options_(options),
      frame_(frame),
      passes_(passes),
      program_(program),
      buffers_(outline.units.size() * program.num_microbatches),
      completed_(outline.units.size(), 0),
      full_(outline.units.size(), -1) {
  for (const Unit& unit : outline.units) {
    first_part_.push_back(num_parts_);
    num_parts_ += static_cast<int>(unit.parts.size());
  }
  writers_.resize(static_cast<size_t>(num_parts_) * program.num_microbatches);
  std::vector<int> last_pass(program.num_microbatches, -1);
  for (int i = 0; i < static_cast<int>(passes.size()); ++i) {
    const Instruction& pass = passes[i];
    if (!IsNodePass(pass.opcode)) {
      continue;
    }
    last_pass[pass.microbatch] = i;
    const Access& access = AccessOf(outline.nodes[pass.target], pass.opcode);
    for (const UnitPart& part : access.parameter_gradients) {
      TANDEM_CHECK(!outline.units[part.unit].frozen, "nothing writes the gradient of a frozen unit");
      Writers& writers = WritersOf(part.unit, part.part, pass.microbatch);
      ++writers.all;
      writers.sums |= access.sums_parameter_gradients;
      BuffersOf(part.unit, pass.microbatch).last_pass = i;
    }
  }
  for (size_t b = 0; b < buffers_.size(); ++b) {
    if (buffers_[b].last_pass < 0) {
      buffers_[b].last_pass = last_pass[b / outline.units.size()];
    }
  }
}

BufferId Contributions::Contribution(UnitId id, int microbatch) {
  BufferId& buffer = BuffersOf(id, microbatch).contribution;
  if (buffer < 0) {
    const Unit& unit = outline_.units[id];
    buffer = AddBuffer(program_, absl::StrCat(unit.name, " contribution mb ", microbatch),
                       BufferKind::kContribution, id, microbatch, Fixed(frame_.units[id].memory.contribution),
                       PartsOf(options_, outline_, id, &UnitPrecision::transport));
  }
  return buffer;
}

BufferId Contributions::Collected(UnitId id, int microbatch) {
  BufferId& buffer = BuffersOf(id, microbatch).collected;
  if (buffer < 0) {
    const Unit& unit = outline_.units[id];
    buffer = AddBuffer(program_, absl::StrCat(unit.name, " collected mb ", microbatch),
                       BufferKind::kCollected, id, microbatch, Fixed(frame_.units[id].memory.collected),
                       PartsOf(options_, outline_, id, &UnitPrecision::main));
  }
  return buffer;
}

bool Contributions::Collects(UnitPart part, int microbatch) {
  const Writers& writers = WritersOf(part.unit, part.part, microbatch);
  return (writers.all > 1 || writers.sums) && IsRounded(outline_.units[part.unit], part.part);
}

Operand Contributions::Write(UnitPart part, int microbatch) {
  const BufferId buffer =
      Collects(part, microbatch) ? Collected(part.unit, microbatch) : Contribution(part.unit, microbatch);
  const bool first = WritersOf(part.unit, part.part, microbatch).before++ == 0;
  return {.buffer = buffer,
          .part = part.part,
          .mode = first ? Mode::kWrites : Mode::kAdds,
          .role = Role::kParameterGradient};
}

void Contributions::After(int i) {
  const int microbatch = passes_[i].microbatch;
  std::vector<UnitPart> parts =
      AccessOf(outline_.nodes[passes_[i].target], passes_[i].opcode).parameter_gradients;
  std::sort(parts.begin(), parts.end(), [](const UnitPart& a, const UnitPart& b) {
    return std::pair(a.unit, a.part) < std::pair(b.unit, b.part);
  });
  for (const UnitPart& part : parts) {
    const Writers& writers = WritersOf(part.unit, part.part, microbatch);
    if (writers.before == writers.all && Collects(part, microbatch)) {
      Round(part.unit, part.part, microbatch);
    }
  }
  for (UnitId id = 0; id < static_cast<int>(outline_.units.size()); ++id) {
    if (!outline_.units[id].frozen && BuffersOf(id, microbatch).last_pass == i) {
      Complete(id, microbatch);
    }
  }
}

Instruction& Contributions::Emit(Opcode opcode, UnitId unit, int microbatch, StreamId stream,
                                 CommunicatorId communicator) {
  program_.instructions.push_back({.opcode = opcode,
                                   .target = unit,
                                   .microbatch = microbatch,
                                   .stream = stream,
                                   .communicator = communicator});
  return program_.instructions.back();
}

void Contributions::Round(UnitId unit, int part, int microbatch) {
  Emit(Opcode::kRound, unit, microbatch, frame_.compute, -1).operands =
      MakeOperands(Opcode::kRound, {{Role::kCollected, Collected(unit, microbatch), part},
                                    {Role::kContribution, Contribution(unit, microbatch), part}});
}

void Contributions::Complete(UnitId id, int microbatch) {
  const UnitMemory& memory = frame_.units[id].memory;
  const BufferId contribution = Contribution(id, microbatch);
  for (int part = 0; part < static_cast<int>(outline_.units[id].parts.size()); ++part) {
    if (WritersOf(id, part, microbatch).all == 0) {
      Emit(Opcode::kZero, id, microbatch, frame_.compute, -1).operands =
          MakeOperands(Opcode::kZero, {{Role::kContribution, contribution, part}});
    }
  }
  const bool first = completed_[id] == 0;
  const bool last = ++completed_[id] == program_.num_microbatches;
  if (!memory.accumulates) {
    Reduce(id, microbatch, {Role::kContribution, contribution}, memory.contribution, last);
    return;
  }
  if (first) {
    full_[id] = AddBuffer(program_, absl::StrCat(outline_.units[id].name, " full gradient"),
                          BufferKind::kFullGradient, id, -1, Fixed(memory.collected));
  }
  Emit(Opcode::kAccumulate, id, microbatch, frame_.compute, -1).operands = MakeOperands(
      Opcode::kAccumulate, {{Role::kContribution, contribution}, {Role::kSum, full_[id]}}, first);
  if (last) {
    Reduce(id, -1, {Role::kSum, full_[id]}, memory.collected, last);
  }
}

void Contributions::Reduce(UnitId id, int microbatch, NamedOperand gradient, int64_t staging_bytes,
                           bool last) {
  const UnitFrame& frame = frame_.units[id];
  const std::string& name = outline_.units[id].name;
  BufferId staging = -1;
  if (frame.memory.exchanges) {
    staging = AddBuffer(
        program_,
        microbatch < 0 ? absl::StrCat(name, " staging") : absl::StrCat(name, " staging mb ", microbatch),
        BufferKind::kStaging, id, microbatch, Fixed(staging_bytes));
  }
  const bool first = microbatch < 0 || completed_[id] == 1;
  const bool reduces_outer = last && frame.memory.reduces_outer;
  Emit(Opcode::kReduceGradients, id, microbatch, frame_.reduce, frame.reduce).operands =
      MakeOperands(Opcode::kReduceGradients,
                   {gradient,
                    {Role::kStaging, staging},
                    {Role::kReduced, frame.gradients},
                    {Role::kNormTerms, last && !reduces_outer ? frame.norm_terms : -1}},
                   first);
  if (!reduces_outer) {
    return;
  }
  const BufferId outer_staging = AddBuffer(program_, absl::StrCat(name, " outer staging"),
                                           BufferKind::kStaging, id, -1, Fixed(frame.memory.outer_staging));
  Emit(Opcode::kReduceOuter, id, -1, frame_.outer, frame.outer_reduce).operands =
      MakeOperands(Opcode::kReduceOuter, {{Role::kReduced, frame.gradients},
                                          {Role::kStaging, outer_staging},
                                          {Role::kNormTerms, frame.norm_terms}});
}

}  // namespace tandem::schedules
