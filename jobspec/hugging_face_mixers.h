// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The keys of a config.json whose layers a pattern lists: of mamba2, nemotron_h, and Tandem's own hybrid.

// Sets model.hybrid_pattern, unless the job has one, from a text of letters or a list of kinds of layers.
// Returns what is neither, or nothing.
std::string ReadMixerPattern(const nlohmann::json& config, v1::Model& model);

// Keys whose values do not fit each other, or what is computed.
std::vector<std::string> MixerProblems(const nlohmann::json& config);

// Adds what such a model's file says of its layers, under the names of its model type.
void AddMixers(const v1::Model& resolved, nlohmann::ordered_json& config);

}  // namespace tandem::jobspec
