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

// The change may mean nothing. Kinds whose name ends in ", waits rederived" have every wait and address
// derived from the changed operands, so that nothing but their meaning can be wrong.
Mutant Mutate(const schedules::Outline& outline, const schedules::StagePrograms& stage,
              std::mt19937_64& random);

// One exchange between stages comes later, with waits rederived: right alone, as a rule, and wrong beside the
// other stage.
Mutant MoveExchange(const schedules::Outline& outline, const schedules::StagePrograms& stage,
                    std::mt19937_64& random);

// The kinds of Mutate.
std::vector<std::string> MutationKinds();

}  // namespace tandem::oracle
