// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "schedules/check/reference.h"
#include "schedules/check/symbols.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Names the cell that held the garbage with this number (SymbolOp::kGarbage) when the run started: "layers.3
// contribution mb 1".
using CellName = std::function<std::string(int garbage)>;

// Describes where two expressions first differ: `got`, which a program computed, and `expected`, which the
// reference has. `name` is what both describe: "the gradient of layers.3". Requires got != expected.
// Examples:
//   "the contribution of layers.3.mlp of microbatch 1 is missing from the gradient of layers.3"
//   "layers.0 is read as it was before its optimizer step"
std::string FirstDifference(const Outline& outline, const CellName& cell_name, const Symbols& symbols,
                            const Reference& reference, Symbol got, Symbol expected, std::string name);

// Names the content of a persistent buffer or ring: "the gradient of layers.3".
std::string ContentName(const Outline& outline, BufferKind kind, int subject);

}  // namespace tandem::schedules
