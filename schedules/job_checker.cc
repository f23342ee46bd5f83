#include "schedules/job_checker.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/checker.h"
#include "schedules/cross_rank.h"

namespace tandem::schedules {
namespace {

absl::Status CheckClasses(const Program& a, const Program& b, const char* role,
                          std::vector<int64_t> Program::*bytes, std::vector<int> Program::*counts) {
  if (a.*bytes == b.*bytes && a.*counts == b.*counts) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(a.name, " and ", b.name,
                                                 " run on the same slots, but do not agree on the ", role,
                                                 " slots: sizes or counts of the classes differ"));
}

absl::Status CheckSharedSlots(const Program& a, const Program& b) {
  if (absl::Status status =
          CheckClasses(a, b, "parameter", &Program::parameter_slot_bytes, &Program::parameter_slots);
      !status.ok()) {
    return status;
  }
  return CheckClasses(a, b, "gradient", &Program::gradient_slot_bytes, &Program::gradient_slots);
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
    // A program without slots shares none.
    if (other != nullptr && !other->parameter_slots.empty()) {
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

}  // namespace tandem::schedules
