// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "model/bound_pass.h"
#include "model/node_declaration.h"

namespace tandem::model {

// The operands of the halves, from those of the whole.
struct HalfOperands {
  std::vector<OperandMemory> input;
  std::vector<OperandMemory> weight;  // empty where there is no such half
};

// Throws std::logic_error where there are not as many as the whole has, or its scratch is too small.
HalfOperands SplitOperands(const NodeDeclaration& declaration, const NodeTypes& types,
                           absl::Span<const OperandMemory> whole);

}  // namespace tandem::model
