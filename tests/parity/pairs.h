// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::parity {

// A choice for every dimension of a matrix: an index below its size.
using Choice = std::vector<int>;

// Every choice, in lexicographic order.
std::vector<Choice> AllChoices(const std::vector<int>& sizes);

// Some of them, so that every pair of values of two dimensions is in at least one. The same for the same
// seed.
std::vector<Choice> ChoicesThatCoverAllPairs(const std::vector<int>& sizes, uint64_t seed);

}  // namespace tandem::parity
