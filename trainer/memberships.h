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

// The groups of a job, in creation order, as this trainer's plan has them or as the controller has listed
// them for a rank.
struct RankGroups {
  std::vector<parallel::Group> all;
  std::vector<int> own;  // indices of those that the rank is in
};

// The memberships in a plan's groups.
RankGroups GroupsOfRank(const std::vector<parallel::Group>& all, int rank);

// Throws BuildMismatch (failure.h), naming the first difference. Shards lie where the plan's groups put the
// rank, and the ranks of a job must agree on each member's place in each group: with members in another order
// they would train on each other's shards, and nothing would fail.
void RequireSameGroups(const RankGroups& planned, const RankGroups& listed);

// The rank's own groups as it joins them. Keys of group i are below "group/i/". options: by group name.
std::vector<comm::Membership> MembershipsOf(const RankGroups& groups, int rank,
                                            const std::map<std::string, parallel::GroupOptions>& options);

// What the programs of a plan communicate with, as communicators are made of it; in the order of
// plan::CommunicatorUses.
std::vector<comm::CommunicatorUse> CommunicatorUsesOf(const plan::JobPlan& plan);

}  // namespace tandem::trainer
