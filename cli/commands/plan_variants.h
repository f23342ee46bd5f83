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

// Parses "KEY=VALUE,VALUE...". KEY is the path of a field that holds one value; or only the last key of such
// a path, if no other field has this key; or "accumulation", the microbatches of a rank, from which
// training.global_batch_size follows. Without a KEY, the values are schedules:
// "sequential,overlap,overlap+delay", where the last delays weight gradients. InvalidArgument is one line.
absl::StatusOr<Comparison> ParseComparison(const std::string& text);

// A job with one value of the comparison.
struct Variant {
  std::string value;
  v1::JobSpec resolved;
  std::vector<v1::Violation> violations;  // empty: `resolved` is good
};

// Returns the job with `value` in the field at `path`, which must come from ParseComparison. `spec` must not
// be resolved, so that defaults follow from the new value.
Variant MakeVariant(const v1::JobSpec& spec, const std::string& path, const std::string& value);

}  // namespace tandem::cli
