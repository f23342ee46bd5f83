// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/control_groups.h"
#include "schedules/simulate/device_profile.h"
#include "tandem/v1/job.pb.h"

namespace tandem::plan {

// Specs beside a job's own, and what a step of each would take. advice.h turns them into sentences.

// One field of a spec, as a spec has it.
struct FieldChange {
  std::string path;  // "parallelism.fsdp.prefetch"
  std::string from;
  std::string to;  // empty: without it
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
  std::vector<FieldChange> beside = {};  // which `field` needs
  v1::JobSpec job;                       // with all of them
};

// What the step of a job shows, which decides what is worth a trial.
struct StepFindings {
  bool compute_waits = false;  // compute stands still for so long that hiding more would help
  bool too_large = false;      // a rank does not fit into its device's memory
};

// The changes of `resolved` that are worth a simulation:
//   other prefetch distances, larger ones only if compute waits;
//   microbatches of twice and half the size, with the same global batch;
//   the other schedules, where ranks share experts;
// and where a rank is too large:
//   more recomputation;
//   zero3, where there are ranks to share with;
//   attention whose bits need not repeat, also with the most recomputation, where the job asks for repeated
//   ones and has kernels of both kinds (bf16 on GPUs).
// Only what jobspec::Validate accepts is among them. Requires a prefetch distance (prefetch_choice.h), and a
// device that is not auto.
std::vector<SpecChange> ChangesToTry(const v1::JobSpec& resolved, const StepFindings& findings);

// A change whose step was simulated.
struct Trial {
  SpecChange change;
  int64_t step_ns = 0;
  int64_t exposed_ns = 0;
  int64_t arena_bytes = 0;
  int64_t device_bytes = 0;  // with what the device holds beside the arena
};

// Plans and simulates each change, at most `most_threads` at once: each takes as long as the job's own plan,
// and as much memory. Trials are in the order of the changes and do not depend on the number of threads.
// Requires a profile with rates of what the jobs compute in (Predict). Throws as MakeJobPlan does.
std::vector<Trial> TryChanges(const std::vector<SpecChange>& changes, const schedules::DeviceProfile& profile,
                              int most_threads = platform::NumProcessors());

}  // namespace tandem::plan
