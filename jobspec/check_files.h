// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Called with a field and the path in it before the path is examined, so that a caller can name and skip a
// path whose file system blocks. If it returns false, the path is skipped, and no violation is reported for
// it.
using BeforePath = std::function<bool(const std::string& field, const std::string& path)>;

// All files that a job with a text at `path` may read, whatever the format of the text.
std::vector<std::string> DataPaths(const std::string& path);

// CheckFiles of jobspec.h for callers that skip some paths.
std::vector<v1::Violation> CheckFiles(const v1::JobSpec& resolved, const BeforePath& before);

}  // namespace tandem::jobspec
