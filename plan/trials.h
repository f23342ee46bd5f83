// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/control_groups.h"
#include "schedules/simulate/device_profile.h"
#include "tandem/v1/job.pb.h"

namespace tandem::plan {

// Variants of a job's spec, and the time that a step of each would take. advice.h turns them into sentences.

// A change of one field, as text in a spec.
struct FieldChange {
  std::string path;  // "parallelism.fsdp.prefetch"
  std::string from;
  std::string to;  // empty: the field is removed
};

enum class ChangeKind : uint8_t {
  kPrefetch,
  kMicroBatch,
  kSchedule,
  kRecompute,
  kStrategy,
  kRepeatability,
};

struct SpecChange {
  ChangeKind kind;
  FieldChange field;
  std::vector<FieldChange> beside = {};  // further changes that `field` needs
  v1::JobSpec job;                       // the spec with all changes
};

// Findings about the step of a job, which decide what is worth a trial.
struct StepFindings {
  bool compute_waits = false;  // compute stands still for so long that hiding more communication would help
  bool too_large = false;      // a rank does not fit into its device's memory
};

// The changes of `resolved` that are worth a simulation:
// * other prefetch distances, larger ones only if compute waits;
// * microbatches of twice and half the size, with the same global batch;
// * the other schedules, if ranks share experts;
// * if a rank is too large: more recomputation; zero3, if there are ranks to share with; and attention whose
//   results need not repeat bit for bit, alone and with the most recomputation, if the job asks for
//   repeatable bits and attention has kernels of both kinds (bf16 on GPUs).
// Only changes that jobspec::Validate accepts are included. Requires a prefetch distance (prefetch_choice.h),
// and a device that is not auto.
std::vector<SpecChange> ChangesToTry(const v1::JobSpec& resolved, const StepFindings& findings);

// A change whose step was simulated.
struct Trial {
  SpecChange change;
  int64_t step_ns = 0;
  int64_t exposed_ns = 0;
  int64_t arena_bytes = 0;
  int64_t device_bytes = 0;  // with the device memory outside the arena
};

// Plans and simulates each change, at most `most_threads` at once. Each takes as much time and memory as
// planning the job itself. Trials are in the order of the changes and do not depend on the number of threads.
// Requires a profile with rates for what the jobs compute in (Predict). Throws as MakeJobPlan does.
std::vector<Trial> TryChanges(const std::vector<SpecChange>& changes, const schedules::DeviceProfile& profile,
                              int most_threads = platform::NumProcessors());

}  // namespace tandem::plan
