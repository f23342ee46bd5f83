// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"

namespace tandem::cli {

// Whether a folder can hold what Tandem keeps: that it can be written, its space, and how long a file takes
// to be durable. Leaves nothing behind.
std::vector<Finding> CheckDisk(const std::string& subject, const std::string& folder);

// The same for checkpoints or data that several machines share, and whether it is of a kind that they can,
// and has what checkpoints need: locks, and a rename that replaces nothing.
std::vector<Finding> CheckShared(const std::string& folder);

}  // namespace tandem::cli
