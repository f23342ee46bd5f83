// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/node_declaration.h"

namespace tandem::model {

// The whole backward of a kind whose backward splits: the input half and behind it the weight half, on the
// same tensors, so that a schedule that splits changes no bit.

// What either half touches, but the intermediates and their scratch, which WholeScratch lays out. Without a
// weight half the input half is the whole.
PassSpec WholeBackward(const SplitBackward& halves);

// Whether a schedule may run the halves apart.
bool SplitsBackward(const NodeDeclaration& declaration);

// The whole's scratch: the intermediates, and behind them what the half that runs needs.
struct WholeScratch {
  std::vector<int64_t> intermediates;  // where each begins
  int64_t half = 0;                    // where the scratch of either begins
  int64_t bytes = 0;
};
WholeScratch LayOutWholeScratch(const NodeDeclaration& declaration, const NodeTypes& types);

// Bytes of the scratch of the backward as a whole, with halves or without.
int64_t BackwardScratchBytes(const NodeDeclaration& declaration, const NodeTypes& types);

}  // namespace tandem::model
