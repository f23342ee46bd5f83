// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/files.h"
#include "tandem/v1/report.pb.h"

namespace tandem::worker {

// The last reports of an attempt, from the metrics.jsonl that its rank 0 wrote: those that a worker had not
// passed on when it died are lost otherwise.

inline constexpr int64_t kMostTailBytes = int64_t{16} << 20;

// Where an attempt writes it, and which steps are its own: earlier ones are of other attempts, or of another
// job from whose checkpoint it started.
struct MetricsPlace {
  std::string directory;  // checkpoint.directory of the job; empty: nowhere
  int64_t first_step = 0;
  int64_t last_step = 0;  // of the job
};

// Reads the report, without norms, of one line; nullopt if it is not a line of such a file.
std::optional<v1::StepReport> ReportOfLine(std::string_view line);

// Reads the reports of the attempt's steps in the last kMostTailBytes of the file, in its order. Empty if the
// directory no longer belongs to the job (its `.owner`), or if nothing can be read. May hang if the file
// system does.
std::vector<v1::StepReport> ReadMetricsTail(platform::Files& files, const std::string& job,
                                            const MetricsPlace& place);

}  // namespace tandem::worker
