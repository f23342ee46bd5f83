// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedules/program/outline.h"

namespace tandem::schedules {

// A decoder's layers, so many for each stage; the first has the embedding, the last the head.
std::vector<Outline> DenseStages(int stages, int layers_of_each);

}  // namespace tandem::schedules
