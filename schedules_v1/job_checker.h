#pragma once

#include "absl/status/status.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// The programs that the ranks of one job run, each the same on every rank. Only `train` must be there.
struct JobPrograms {
  const Program* train = nullptr;
  const Program* validate = nullptr;
  const Program* snapshot = nullptr;
};

// The one check that every job passes before it runs. Proves (checker.h, cross_rank.h) that
//
//   * the programs run in every order in which a job runs them: training steps with a validation, a snapshot,
//     or both between them
//   * a validation and a snapshot change nothing that the next step reads
//   * they share their slots: a size class has the same size in all of them, and as many slots
//   * two ranks that run the same of them meet in every collective
//
// InvalidArgument names the first thing that is wrong. Linear in the number of instructions.
absl::Status CheckJob(const Outline& outline, const JobPrograms& programs);

}  // namespace tandem::schedules_v1
