// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator_factory.h"
#include "comm/communicators.h"
#include "parallel/group_options.h"
#include "parallel/job_groups.h"
#include "plan/job_plan.h"

namespace tandem::trainer {

// Throws BuildMismatch (failure.h) with the first difference between the groups in this trainer's plan and
// those that the controller lists, if there is one. All ranks must agree on the order of members in each
// group, because it decides which shards a rank holds: ranks that disagree would use each other's shards
// without any error.
void RequireSameGroups(const std::vector<parallel::Group>& planned,
                       const std::vector<parallel::Group>& listed);

// Returns the rank's membership in each group that contains it, with the key prefix "group/i/" for group i.
// `options` is by group name.
std::vector<comm::Membership> MembershipsOf(const std::vector<parallel::Group>& groups, int rank,
                                            const std::map<std::string, parallel::GroupOptions>& options);

// Converts plan::CommunicatorUses(plan) to the arguments of comm::Communicators, in the same order.
std::vector<comm::CommunicatorUse> CommunicatorUsesOf(const plan::JobPlan& plan);

}  // namespace tandem::trainer
