#pragma once

#include <string>

#include "plan/job_plan.h"

namespace tandem::plan {

// What `tandem describe --layout` prints, for people: the axes and groups that units are placed over, and of
// each unit its padding, its buffers on one rank and the offset of each parameter. Lines end in "\n".
std::string LayoutText(const JobPlan& plan);

}  // namespace tandem::plan
