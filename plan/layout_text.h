// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "plan/job_plan.h"

namespace tandem::plan {

// The text of `tandem describe --layout`: the axes and groups that units are placed over, and for each unit
// its padding, its buffers on one rank and the offset of each parameter. Lines end in "\n".
std::string LayoutText(const JobPlan& plan);

}  // namespace tandem::plan
