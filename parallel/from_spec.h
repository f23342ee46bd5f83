// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "parallel/grid_sizes.h"
#include "parallel/group_options.h"
#include "parallel/process_groups.h"
#include "tandem/v1/job.pb.h"

namespace tandem::parallel {

// Returns the grid sizes of a resolved job spec, which has no fields for some of them: separate_all_gather is
// true; rank_offset, virtual_pipeline and context_levels have their defaults.
GridSizes GridOf(const v1::Parallelism& resolved);

// Returns the options of each group that has any, by the group's name. A clone has the options of the group
// that it is cloned from, except those that the spec sets for the clone itself.
std::map<std::string, GroupOptions> GroupOptionsOf(const v1::NcclGroups& spec, const ProcessGroups& groups);

}  // namespace tandem::parallel
