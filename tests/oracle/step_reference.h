// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "tests/oracle/machine.h"

namespace tandem::oracle {

// Computes what must be observed after a sequence of correct runs of a stage ("begin", "train", "update",
// "validate", "train_save"). It executes every microbatch after the other and every node after the other, on
// all ranks, and uses only the outline, strategies and sizes. From the stage's programs it takes only which
// persistent buffers and rings there are, and how buffers are divided into parts.
Observations ReferenceOf(const schedules::Outline& outline, const schedules::BuildOptions& options,
                         const schedules::StagePrograms& stage, const std::vector<std::string>& runs);

}  // namespace tandem::oracle
