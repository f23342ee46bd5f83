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

// The process groups of a job in the order of their creation, and a rank's groups among them, from this
// trainer's plan or from the controller's list.
struct RankGroups {
  std::vector<parallel::Group> all;
  std::vector<int> own;  // indices of the groups that contain the rank
};

// Finds the groups among `all`, a plan's groups, that contain `rank`.
RankGroups GroupsOfRank(const std::vector<parallel::Group>& all, int rank);

// Throws BuildMismatch (failure.h) with the first difference, if there is one. All ranks must agree on the
// order of members in each group, because it decides which shards a rank holds: ranks that disagree would use
// each other's shards without any error.
void RequireSameGroups(const RankGroups& planned, const RankGroups& listed);

// Returns the rank's membership in each of its own groups, with the key prefix "group/i/" for group i.
// `options` is by group name.
std::vector<comm::Membership> MembershipsOf(const RankGroups& groups, int rank,
                                            const std::map<std::string, parallel::GroupOptions>& options);

// Converts plan::CommunicatorUses(plan) to the arguments of comm::Communicators, in the same order.
std::vector<comm::CommunicatorUse> CommunicatorUsesOf(const plan::JobPlan& plan);

}  // namespace tandem::trainer
