// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Called before a path of a job is examined, which may take as long as its file system likes, with the field
// and its value. If it returns false, the path is skipped, and no violation is reported for it.
using BeforePath = std::function<bool(const std::string& field, const std::string& path)>;

// All files that a job may read if it names a text's `path`, whatever format it says.
std::vector<std::string> DataPaths(const std::string& path);

// CheckFiles of jobspec.h for callers that do not wait for every path.
std::vector<v1::Violation> CheckFiles(const v1::JobSpec& resolved, const BeforePath& before);

}  // namespace tandem::jobspec
