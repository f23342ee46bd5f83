// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// Stages are a division of the outline: each of its nodes, units and states is in exactly one of them, with
// the same declaration. The line says what is not: "meant: 2 stages have layers.1.mlp".
absl::Status CheckDivision(const Outline& undivided, absl::Span<const Stage> stages);

}  // namespace tandem::schedules
