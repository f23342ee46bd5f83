// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "schedules/check/reference.h"
#include "schedules/check/symbols.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// What the garbage of that number was in: "layers.3 contribution mb 1".
using CellName = std::function<std::string(int garbage)>;

// In words, where two expressions first differ: what a program has computed, and what the reference has.
// `name` is what they are of: "the gradient of layers.3". Requires got != expected.
//   "the contribution of layers.3.mlp of microbatch 1 is missing from the gradient of layers.3"
//   "layers.0 is read as it was before its optimizer step"
std::string FirstDifference(const Outline& outline, const CellName& cell_name, const Symbols& symbols,
                            const Reference& reference, Symbol got, Symbol expected, std::string name);

// "the gradient of layers.3": what a persistent buffer or ring holds.
std::string ContentName(const Outline& outline, BufferKind kind, int subject);

}  // namespace tandem::schedules
