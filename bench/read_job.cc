// SPDX-License-Identifier: Apache-2.0
#include "bench/read_job.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "jobspec/jobspec.h"
#include "link/exit_code.h"

namespace tandem::bench {

v1::JobSpec ReadJobOrExit(const char* path) {
  jobspec::ReadResult read = jobspec::ReadFile(path);
  jobspec::Checked checked = jobspec::CheckAll(read, [](const v1::JobSpec&) { return true; });
  if (!checked.violations.empty()) {
    std::fprintf(stderr, "%s\n", jobspec::ToText(checked.violations).c_str());
    std::exit(static_cast<int>(link::ExitCode::kUserError));
  }
  return std::move(checked.resolved);
}

}  // namespace tandem::bench
