// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// Checks that the stages divide the outline: each node, unit and state of it is in exactly one stage, with
// the same declaration. The error names what is not: "meant: 2 stages have layers.1.mlp".
absl::Status CheckDivision(const Outline& undivided, absl::Span<const Stage> stages);

}  // namespace tandem::schedules
