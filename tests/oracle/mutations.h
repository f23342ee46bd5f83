// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "tests/oracle/program_edit.h"

namespace tandem::oracle {

// Makes one random change, which may have no effect. In kinds whose name ends in ", waits rederived", all
// waits and addresses are derived from the changed operands, so only the meaning can be wrong.
Mutant Mutate(const schedules::Outline& outline, const schedules::StagePrograms& stage,
              std::mt19937_64& random);

// Moves one exchange between stages to a later position and derives waits again. The result is usually
// correct for the stage alone, and wrong together with the other stage.
Mutant MoveExchange(const schedules::Outline& outline, const schedules::StagePrograms& stage,
                    std::mt19937_64& random);

// All kinds that Mutate makes.
std::vector<std::string> MutationKinds();

}  // namespace tandem::oracle
