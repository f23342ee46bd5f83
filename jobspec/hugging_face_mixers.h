// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The keys of a config.json whose layers a pattern lists: of mamba2, nemotron_h, granitemoehybrid, bamba, and
// Tandem's own hybrid.

// Sets model.hybrid_pattern, unless the job has one, from letters in the file or a list of kinds of layers.
// Returns an error if the value is neither; empty: none.
std::string ReadMixerPattern(const nlohmann::json& config, v1::Model& model);

// The same of granitemoehybrid and bamba, in which every layer is a mixer or an attention, and behind it an
// MLP or experts: by layer_types, or by attn_layer_indices, with which layer_types must then agree.
std::string ReadPairs(const nlohmann::json& config, bool by_places, v1::Model& model);

// What a file of the model type calls the sizes of its Mamba-2 mixers.
struct MixerKeys {
  const char* num_heads;
  const char* head_dim;
  const char* state_size;
  const char* n_groups;
  const char* conv_kernel;
  const char* chunk_size;
};
MixerKeys MixerKeysOf(const std::string& model_type);

// What mamba_d_head "auto" stands for; null where it follows from nothing.
nlohmann::json AutoHeadDim(const nlohmann::json& config);

// Keys whose values contradict each other or what Tandem computes.
std::vector<std::string> MixerProblems(const nlohmann::json& config);

// Adds the keys for such a model's layers to a config.json, under the names of its model type.
void AddMixers(const v1::Model& resolved, nlohmann::ordered_json& config);

// Adds what multiplies the numbers of Granite's models; nothing to those of others.
void AddMultipliers(const v1::Model& resolved, nlohmann::ordered_json& config);

}  // namespace tandem::jobspec
