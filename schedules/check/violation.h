// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// Errors for programs that break a rule: one line of InvalidArgument.

// "formed: train: <what>"
absl::Status Violation(absl::string_view rule, const Program& program, absl::string_view what);

// "ordered: train: 12 (forward layers.0.mlp mb 0) <what>"
absl::Status Violation(absl::string_view rule, const Outline& outline, const Program& program,
                       int instruction, absl::string_view what);

// "12 (forward layers.0.mlp mb 0)"
std::string Describe(const Outline& outline, const Program& program, int instruction);

}  // namespace tandem::schedules
