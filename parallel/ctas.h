// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "parallel/group_options.h"

namespace tandem::parallel {

// Collectives of all communicators of a GPU may run at once. Thread blocks (CTAs) that do not fit beside each
// other can wait for each other forever, so each communicator has a bound, and the sum of the bounds leaves
// these multiprocessors to compute.
inline constexpr int kSpareMultiprocessors = 8;
inline constexpr int kMultiprocessors =
    132;  // of an H100 or H200; ranks count their own GPU's when they start

// The most thread blocks that a collective of a communicator takes: what the job says for its group, else by
// its purpose. Also where copy engines move its data, since kernels do where NCCL refuses to register a
// window.
int BoundOfCtas(const GroupOptions& options, const std::string& purpose);

}  // namespace tandem::parallel
