// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jobspec/hugging_face_keys.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Reads and writes the keys in a config.json of models whose kinds of layers follow a pattern: mamba2,
// nemotron_h, granitemoehybrid, bamba, qwen3_next, and Tandem's own hybrid.

// Sets model.hybrid_pattern, unless the job has one, from letters in the file or a list of kinds of layers.
KeyProblem ReadMixerPattern(const nlohmann::json& config, v1::Model& model);

// Does the same for granitemoehybrid and bamba, in which every layer is a mixer or an attention layer,
// followed by an MLP or experts. The key layer_types lists the kinds of layers. If `by_places`, the key
// attn_layer_indices lists the attention layers instead; layer_types, if present, must then agree with it.
KeyProblem ReadPairs(const nlohmann::json& config, bool by_places, v1::Model& model);

// Does the same for qwen3_next. The key layer_types says which layers are attention layers; without it, every
// full_attention_interval-th layer is one. The others are gated delta nets. A layer is sparse if its number,
// counted from 1, is a multiple of decoder_sparse_step and mlp_only_layers does not list it.
KeyProblem ReadIntervals(const nlohmann::json& config, v1::Model& model);

// If mamba_d_head is "auto", replaces it by the number that follows from other keys. If one of these keys is
// missing or invalid, returns the first such key.
KeyProblem ReplaceAutoHeadDim(nlohmann::json& config);

// Lists keys of heads and widths whose values contradict each other.
std::vector<std::string> MixerProblems(const nlohmann::json& config);

// Adds the keys of a model whose layers follow a pattern, under the names of its model type.
void AddMixers(const v1::Model& resolved, nlohmann::ordered_json& config);

}  // namespace tandem::jobspec
