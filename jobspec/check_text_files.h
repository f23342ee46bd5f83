// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "jobspec/check_files.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Everything that is wrong with the files of the job's texts, as far as names, sizes, headers, indices and
// (for tokens that may be copies) samples show. The trainer refuses the same when it starts.
std::vector<v1::Violation> CheckTextFiles(const v1::JobSpec& resolved, const BeforePath& before);

}  // namespace tandem::jobspec
