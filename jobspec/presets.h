// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Models that a job can choose by name. Fields of the spec override fields of the preset.

// All names, sorted.
std::vector<std::string> PresetNames();

// The fields that the preset sets; null for an unknown name. Resolve derives all other fields from these and
// from the job's own, so that they fit each other.
const v1::Model* FindPreset(const std::string& name);

}  // namespace tandem::jobspec
