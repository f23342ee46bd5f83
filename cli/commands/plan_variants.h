// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "jobspec/jobspec.h"
#include "tandem/v1/job.pb.h"

namespace tandem::cli {

// The request of `tandem plan --compare prefetch=0,1,2`: one field of the job and the values to try.
struct Comparison {
  std::string path;                 // "parallelism.fsdp.prefetch", or "accumulation"
  std::vector<std::string> values;  // as written, at least one
};

// "KEY=VALUE,VALUE...". KEY is the path of a field that holds one value, its last key if no other field
// has the same, or accumulation: microbatches a rank, which sets training.global_batch_size. Or schedules
// alone, "sequential,overlap,overlap+delay": the last delays weight gradients. InvalidArgument is one line.
absl::StatusOr<Comparison> ParseComparison(const std::string& text);

// A job with one value of the comparison.
struct Variant {
  std::string value;
  v1::JobSpec resolved;
  std::vector<v1::Violation> violations;  // empty: `resolved` is good
};

// Requires a path that ParseComparison returned. `spec` is as submitted, so what follows from the field (a
// default) follows from its new value.
Variant MakeVariant(const v1::JobSpec& spec, const std::string& path, const std::string& value);

}  // namespace tandem::cli
