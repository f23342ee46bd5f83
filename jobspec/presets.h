// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Models by name; fields of the spec override theirs.

// Sorted.
std::vector<std::string> PresetNames();

// The fields that the preset sets; null for an unknown name. What is not set follows from the other fields
// (Resolve), so that overriding one of them gives a model that fits.
const v1::Model* FindPreset(const std::string& name);

}  // namespace tandem::jobspec
