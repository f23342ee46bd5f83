// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::oracle {

// Merges the stages of a pipeline into one, with the numbers of the undivided outline. Instructions are in an
// order in which they can end, and have no waits. Every buffer has a place of its own. A send and its receive
// become one copy. The norms become one that reads the terms of all stages, and whose outcome is copied to
// each. Requires programs that get to the end together.
schedules::StagePrograms MergeStages(const std::vector<schedules::Stage>& stages,
                                     const std::vector<schedules::StagePrograms>& programs);

}  // namespace tandem::oracle
