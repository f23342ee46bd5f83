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

// The groups of a job in the order of their creation, either from this trainer's plan or as the controller
// listed them for a rank.
struct RankGroups {
  std::vector<parallel::Group> all;
  std::vector<int> own;  // indices of the groups that contain the rank
};

// The memberships of a rank in a plan's groups.
RankGroups GroupsOfRank(const std::vector<parallel::Group>& all, int rank);

// Throws BuildMismatch (failure.h), naming the first difference. The plan's groups decide where a rank's
// shards lie, and all ranks must agree on each member's place in each group: with members in another order
// they would train on each other's shards without any error.
void RequireSameGroups(const RankGroups& planned, const RankGroups& listed);

// The rank's own groups, as it joins them. The keys of group i begin with "group/i/". `options` is by group
// name.
std::vector<comm::Membership> MembershipsOf(const RankGroups& groups, int rank,
                                            const std::map<std::string, parallel::GroupOptions>& options);

// What the programs of a plan communicate with, as the arguments from which communicators are made, in the
// order of plan::CommunicatorUses.
std::vector<comm::CommunicatorUse> CommunicatorUsesOf(const plan::JobPlan& plan);

}  // namespace tandem::trainer
