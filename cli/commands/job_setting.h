// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::cli {

// Gives one field of a job another value: "training.optimizer.learning_rate=1e-4", "data.train=/data/a.txt",
// The value is read as in a job file; what was there before is gone. Violations
// where the field or the value is none; their path begins with the setting's.
std::vector<v1::Violation> ApplySetting(const std::string& setting, v1::JobSpec& spec);

}  // namespace tandem::cli
