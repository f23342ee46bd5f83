// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "parallel/group_options.h"
#include "parallel/process_groups.h"
#include "tandem/v1/job.pb.h"

namespace tandem::parallel {

// The options of every group of the collection that has any, by name. A clone has those of the group that it
// is a clone of, but where the spec says otherwise.
std::map<std::string, GroupOptions> GroupOptionsOf(const v1::NcclGroups& spec, const ProcessGroups& groups);

}  // namespace tandem::parallel
