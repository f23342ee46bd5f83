// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The keys of a config.json whose layers are given by a pattern: mamba2, nemotron_h, and Tandem's own hybrid.

// Sets model.hybrid_pattern, unless the job has one, from letters in the file or a list of kinds of layers.
// Returns an error if the value is neither; empty: none.
std::string ReadMixerPattern(const nlohmann::json& config, v1::Model& model);

// Keys whose values contradict each other or what Tandem computes.
std::vector<std::string> MixerProblems(const nlohmann::json& config);

// Adds the keys for such a model's layers to a config.json, under the names of its model type.
void AddMixers(const v1::Model& resolved, nlohmann::ordered_json& config);

}  // namespace tandem::jobspec
