// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/node.h"
#include "plan/job_plan.h"
#include "tests/parity/job.h"

namespace tandem::parity {

// A decoder of which each rank computes every MLP on rows of all ranks: ahead of it, a node exchanges the
// hidden states by an all-to-all over the group "ep", which all ranks are in, and behind it another one gives
// them back. As a mixture of experts does, on a stream of their own; and each counts its rows in a state. It
// is the decoder of the same job, but the rows of a contribution come from other microbatches.
plan::JobPlan ExchangeJob(const JobOptions& options, schedules::Schedule schedule);

// The code of its nodes, for RunOptions::make_nodes. `plan` outlives it. before: called ahead of each
// exchange with the node's name and pass, on the stream's thread; empty: nothing.
std::function<std::vector<std::unique_ptr<model::Node>>(const ops::Operations& ops)> ExchangeNodes(
    const plan::JobPlan& plan, std::function<void(const std::string& node, const char* pass)> before = {});

}  // namespace tandem::parity
