// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Models with names. Fields of the spec override those of a preset.

// All names, sorted.
std::vector<std::string> PresetNames();

// The fields that the preset sets; null for an unknown name. The others are derived from these (Resolve), so
// that a model with an overridden field is consistent.
const v1::Model* FindPreset(const std::string& name);

}  // namespace tandem::jobspec
