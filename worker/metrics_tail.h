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

// Recovers the last reports of an attempt from the metrics.jsonl of its rank 0. Otherwise reports that a
// worker had not forwarded when it died would be lost.

inline constexpr int64_t kMostTailBytes = int64_t{16} << 20;

// The location of an attempt's metrics.jsonl, and the attempt's steps in it. Earlier lines are of other
// attempts, or of the job from whose checkpoint this one started.
struct MetricsPlace {
  std::string directory;  // checkpoint.directory of the job; empty: there is no file
  int64_t first_step = 0;
  int64_t last_step = 0;  // of the job
};

// Parses one line into a report, without norms; nullopt if it is not a line of metrics.jsonl.
std::optional<v1::StepReport> ReportOfLine(std::string_view line);

// Returns the reports of the attempt's steps in the last kMostTailBytes of the file, in file order. Empty if
// the directory now belongs to another job (by its `.owner` file), or if nothing can be read. Hangs if the
// file system does.
std::vector<v1::StepReport> ReadMetricsTail(platform::Files& files, const std::string& job,
                                            const MetricsPlace& place);

}  // namespace tandem::worker
