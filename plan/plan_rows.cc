// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_rows.h"

#include <algorithm>

namespace tandem::plan {

std::vector<UnitRow> UnitRows(const JobPlan& plan) {
  std::vector<UnitRow> rows(plan.units.size());
  const std::vector<fsdp::ClassLayouts> whole = WholeLayouts(plan);
  for (size_t unit = 0; unit < rows.size(); ++unit) {
    for (const fsdp::Layout& layout : whole[unit]) {
      rows[unit].parameters += fsdp::ParameterElements(layout);
    }
    for (const fsdp::Layout& layout : plan.layouts[unit]) {
      rows[unit].elements += layout.elements;
      rows[unit].held_elements += fsdp::HeldRange(layout, MeshOf(plan, unit, /*rank=*/0)).size();
    }
  }
  for (const schedules::Buffer& buffer : plan.stage.train.buffers) {
    if (buffer.kind == schedules::BufferKind::kGathered) {
      rows[buffer.subject].gathered_bytes = buffer.bytes.bound;
    }
  }
  for (const schedules::Instruction& instruction : plan.stage.train.instructions) {
    if (instruction.opcode == schedules::Opcode::kUnshard) {
      ++rows[instruction.target].gathers;
    } else if (instruction.opcode == schedules::Opcode::kReduceGradients) {
      ++rows[instruction.target].reductions;
    }
  }
  for (const schedules::Instruction& instruction : plan.stage.validate.instructions) {
    rows[instruction.target].validation_gathers += instruction.opcode == schedules::Opcode::kUnshard;
  }
  return rows;
}

WaitCounts CountWaits(const schedules::Program& program) {
  WaitCounts counts;
  for (const schedules::Instruction& instruction : program.instructions) {
    for (const schedules::Wait& wait : instruction.waits) {
      ++counts.all;
      counts.for_memory += wait.frees > 0;
    }
  }
  return counts;
}

bool Validates(const JobPlan& plan) {
  return plan.train.validate_every_steps > 0 && plan.train.validation_batches > 0;
}

double ValidationFlops(const JobPlan& plan) {
  const auto texts = static_cast<double>(std::max<size_t>(1, plan.train.data.validation.size()));
  return model::FlopsPerToken(plan.model, plan.batch.sequence_length) / 3 * texts *
         static_cast<double>(plan.train.validation_batches * plan.batch.sequences *
                             plan.batch.sequence_length);
}

}  // namespace tandem::plan
