// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "jobspec/jobspec.h"

namespace tandem::jobspec {

// Check, saying nothing about fields at or below the `unusable` paths, nor about what follows from them.
Checked CheckExcept(const v1::JobSpec& spec, const std::vector<std::string>& unusable);

}  // namespace tandem::jobspec
