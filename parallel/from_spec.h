// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "parallel/grid_sizes.h"
#include "parallel/group_options.h"
#include "parallel/process_groups.h"
#include "tandem/v1/job.pb.h"

namespace tandem::parallel {

// The grid sizes of a resolved job spec. Ranks are numbered from 0, and gathers always have cloned groups.
GridSizes GridOf(const v1::Parallelism& resolved);

// The options of each group that has any, by the group's name. A clone has the options of the group that it
// is cloned from, except those that the spec sets for the clone itself.
std::map<std::string, GroupOptions> GroupOptionsOf(const v1::NcclGroups& spec, const ProcessGroups& groups);

}  // namespace tandem::parallel
