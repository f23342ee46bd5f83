// SPDX-License-Identifier: Apache-2.0
#include "bench/read_job.h"

#include <cstdio>
#include <cstdlib>

#include "jobspec/jobspec.h"
#include "link/exit_code.h"

namespace tandem::bench {

v1::JobSpec ReadJobOrExit(const char* path) {
  jobspec::ReadResult read = jobspec::ReadFile(path);
  const std::vector<v1::Violation> violations = jobspec::CheckAll(read, /*files=*/true);
  if (!violations.empty()) {
    std::fprintf(stderr, "%s\n", jobspec::ToText(violations).c_str());
    std::exit(static_cast<int>(link::ExitCode::kUserError));
  }
  return jobspec::Resolve(read.spec);
}

}  // namespace tandem::bench
