// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "tests/oracle/machine.h"

namespace tandem::oracle {

// What must be observed after a sequence of runs of correct programs ("begin", "train", "update", "validate",
// "train_save") of a stage, computed on all ranks from the outline, strategies and sizes alone: every
// microbatch after the other, every node after the other. From the stage's programs it takes only which
// persistent buffers and rings there are, and which buffers are divided into which parts.
Observations ReferenceOf(const schedules::Outline& outline, const schedules::BuildOptions& options,
                         const schedules::StagePrograms& stage, const std::vector<std::string>& runs);

}  // namespace tandem::oracle
