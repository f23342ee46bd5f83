#include "schedules_v1/job_checker.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules_v1/checker.h"
#include "schedules_v1/cross_rank.h"
#include "schedules_v1/operands.h"

namespace tandem::schedules_v1 {
namespace {

// "2 x 4096 bytes"
std::string ClassText(const std::vector<int64_t>& bytes, const std::vector<int>& counts, size_t size_class) {
  return size_class < counts.size() ? absl::StrCat(counts[size_class], " x ", bytes[size_class], " bytes")
                                    : "no such class";
}

absl::Status CheckClasses(const Program& a, const Program& b, SlotRole role,
                          std::vector<int64_t> Program::*bytes, std::vector<int> Program::*counts) {
  for (size_t c = 0; c < std::max((a.*counts).size(), (b.*counts).size()); ++c) {
    const std::string of_a = ClassText(a.*bytes, a.*counts, c);
    const std::string of_b = ClassText(b.*bytes, b.*counts, c);
    if (of_a != of_b) {
      return absl::InvalidArgumentError(
          absl::StrCat(a.name, " and ", b.name, " run on the same slots, but do not agree on the ",
                       role == SlotRole::kParameters ? "parameter slots p" : "gradient slots g", c, ": ",
                       of_a, " and ", of_b));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSharedSlots(const Program& a, const Program& b) {
  if (absl::Status status = CheckClasses(a, b, SlotRole::kParameters, &Program::parameter_slot_bytes,
                                         &Program::parameter_slots);
      !status.ok()) {
    return status;
  }
  return CheckClasses(a, b, SlotRole::kGradients, &Program::gradient_slot_bytes, &Program::gradient_slots);
}

// A validation and a snapshot leave weights, optimizer state and gradient shards as the step left them. All
// changes begin with a reduction: no norm is taken without (lifetimes.h), and no weights change without a
// norm.
absl::Status CheckChangesNothing(const Outline& outline, const Program& program) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].opcode == Opcode::kReduceGradients) {
      return absl::InvalidArgumentError(absl::StrCat(
          DescribeInstruction(outline, program, static_cast<int>(i)), " changes the gradient of ",
          outline.units[program.instructions[i].target].name, ", which between training steps nothing may"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckJob(const Outline& outline, const JobPrograms& programs) {
  const Program* train = programs.train;
  // Each that there is after and before a step, and a step after itself.
  std::vector<const Program*> sequence = {train, train};
  if (programs.validate != nullptr) {
    sequence.insert(sequence.end(), {programs.validate, train});
  }
  if (programs.snapshot != nullptr) {
    sequence.insert(sequence.end(), {programs.snapshot, train});
  }
  if (programs.validate != nullptr && programs.snapshot != nullptr) {
    sequence.insert(sequence.end(), {programs.validate, programs.snapshot, train});
  }
  if (absl::Status status = CheckSequence(outline, sequence); !status.ok()) {
    return status;
  }
  for (const Program* other : {programs.validate, programs.snapshot}) {
    if (other == nullptr) {
      continue;
    }
    if (absl::Status status = CheckChangesNothing(outline, *other); !status.ok()) {
      return status;
    }
    // A program without slots shares none.
    if (!other->parameter_slots.empty() || !other->gradient_slots.empty()) {
      if (absl::Status status = CheckSharedSlots(*train, *other); !status.ok()) {
        return status;
      }
    }
  }
  for (const Program* program : {train, programs.validate, programs.snapshot}) {
    if (program != nullptr) {
      if (absl::Status status = CheckRanks(InOneGroup(outline, {program, program})); !status.ok()) {
        return status;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::schedules_v1
