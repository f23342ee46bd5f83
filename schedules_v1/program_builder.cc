#include "schedules_v1/program_builder.h"

#include <algorithm>

#include "platform/check.h"
#include "schedules_v1/passes.h"
#include "schedules_v1/sequential.h"

namespace tandem::schedules_v1 {
namespace {

Program RunPasses(const Outline& outline, const FsdpOptions& options, Program program) {
  TANDEM_CHECK(options.unit_parameter_slot_bytes.size() == outline.units.size() &&
                   options.unit_gradient_slot_bytes.size() == outline.units.size(),
               "there is a slot size for every unit");
  TANDEM_CHECK(options.prefetch >= 0, "the prefetch distance is not negative");
  InsertFsdp(outline, options.prefetch, program);
  AssignStreams(outline, program);
  InsertReleases(outline, program);
  ChooseGradientModes(outline, program);
  AssignSlots(outline, options.unit_parameter_slot_bytes, options.unit_gradient_slot_bytes, program);
  InsertWaits(outline, program);
  return program;
}

void ShareCounts(std::vector<int>& a, std::vector<int>& b) {
  TANDEM_CHECK(a.size() == b.size(), "both programs have the same size classes");
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = b[i] = std::max(a[i], b[i]);
  }
}

}  // namespace

Program BuildTrainProgram(const Outline& outline, const FsdpOptions& options, int num_microbatches) {
  return RunPasses(outline, options, BuildSequential(outline, num_microbatches));
}

Program BuildValidateProgram(const Outline& outline, const FsdpOptions& options, int num_microbatches) {
  return RunPasses(outline, options, BuildForwardOnly(outline, num_microbatches));
}

Program BuildSnapshotProgram() {
  return {.name = "snapshot", .instructions = {{.opcode = Opcode::kSnapshot}}};
}

void ShareSlots(Program& a, Program& b) {
  TANDEM_CHECK(
      a.parameter_slot_bytes == b.parameter_slot_bytes && a.gradient_slot_bytes == b.gradient_slot_bytes,
      "both programs have the same size classes");
  ShareCounts(a.parameter_slots, b.parameter_slots);
  ShareCounts(a.gradient_slots, b.gradient_slots);
}

}  // namespace tandem::schedules_v1
