// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::oracle {

// The stages of a pipeline as one, in the numbers of the undivided outline: their instructions in an order in
// which they can end. Every buffer has a place of its own. A send and its receive are one copy; norms are one
// that reads the terms of all, and whose outcome is copied to each. There are no waits. Requires programs
// that get to the end together.
schedules::StagePrograms MergeStages(const std::vector<schedules::Stage>& stages,
                                     const std::vector<schedules::StagePrograms>& programs);

}  // namespace tandem::oracle
