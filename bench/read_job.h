// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tandem/v1/job.pb.h"

namespace tandem::bench {

// The resolved spec of a job file. If the file is refused, prints the violations on standard error and exits
// with 64.
v1::JobSpec ReadJobOrExit(const char* path);

}  // namespace tandem::bench
