// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tandem/v1/job.pb.h"

namespace tandem::bench {

// The resolved spec of a job file. Prints what is wrong with the file on standard error and ends the process
// with 64 where it is refused.
v1::JobSpec ReadJobOrExit(const char* path);

}  // namespace tandem::bench
