#include "schedules_v1/sequential.h"

#include "platform/check.h"

namespace tandem::schedules_v1 {
namespace {

int NumNodes(const Outline& outline) { return static_cast<int>(outline.nodes.size()); }

void Emit(Program& program, Opcode opcode, int target, int microbatch) {
  program.instructions.push_back({.opcode = opcode, .target = target, .microbatch = microbatch});
}

void EmitForward(const Outline& outline, int microbatch, Program& program) {
  Emit(program, Opcode::kLoadBatch, outline.batch, microbatch);
  for (NodeId node = 0; node < NumNodes(outline); ++node) {
    Emit(program, Opcode::kForward, node, microbatch);
  }
}

}  // namespace

Program BuildSequential(const Outline& outline, int num_microbatches) {
  TANDEM_CHECK(num_microbatches > 0, "a step has at least one microbatch");
  Program program{.name = "train", .num_microbatches = num_microbatches};
  for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
    EmitForward(outline, microbatch, program);
    for (NodeId node = NumNodes(outline) - 1; node >= 0; --node) {
      Emit(program, Opcode::kBackward, node, microbatch);
    }
  }
  Emit(program, Opcode::kGradientNorm, -1, -1);
  for (UnitId unit = 0; unit < static_cast<int>(outline.units.size()); ++unit) {
    Emit(program, Opcode::kOptimizerStep, unit, -1);
  }
  Emit(program, Opcode::kReport, -1, -1);
  return program;
}

Program BuildForwardOnly(const Outline& outline, int num_microbatches) {
  TANDEM_CHECK(num_microbatches > 0, "a validation has at least one microbatch");
  Program program{.name = "validate", .num_microbatches = num_microbatches};
  for (int microbatch = 0; microbatch < num_microbatches; ++microbatch) {
    EmitForward(outline, microbatch, program);
  }
  Emit(program, Opcode::kReport, -1, -1);
  return program;
}

}  // namespace tandem::schedules_v1
