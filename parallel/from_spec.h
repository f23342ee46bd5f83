// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "parallel/grid_sizes.h"
#include "parallel/group_options.h"
#include "parallel/process_groups.h"
#include "tandem/v1/job.pb.h"

namespace tandem::parallel {

// The sizes that a resolved job spec gives: its ranks are 0, 1, ..., and gathers always have clones.
GridSizes GridOf(const v1::Parallelism& resolved);

// The options of every group of the collection that has any, by name. A clone has those of the group that it
// is a clone of, but where the spec says otherwise.
std::map<std::string, GroupOptions> GroupOptionsOf(const v1::NcclGroups& spec, const ProcessGroups& groups);

}  // namespace tandem::parallel
