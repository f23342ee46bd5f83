// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tandem/v1/job.pb.h"

namespace tandem::bench {

// Reads a job file and returns its resolved spec. If the file is refused, prints the violations to standard
// error and exits with code 64.
v1::JobSpec ReadJobOrExit(const char* path);

}  // namespace tandem::bench
