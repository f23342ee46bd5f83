// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::controller {

// An error of a database in --state, with what to do about it: about damage what `of_damage` says. OK stays
// OK.
absl::Status WithRemedy(const absl::Status& status, absl::string_view of_damage);

}  // namespace tandem::controller
