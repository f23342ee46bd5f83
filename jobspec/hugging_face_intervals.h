// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "jobspec/hugging_face_keys.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The keys of a config.json of qwen3_next that say what its layers are.

// Sets model.hybrid_pattern, unless the job has one. layer_types says which layers attend; without it, every
// full_attention_interval-th layer does. The others are gated delta nets. A layer is sparse if its number,
// from 1, is a multiple of decoder_sparse_step and mlp_only_layers does not list it.
KeyProblem ReadIntervals(const nlohmann::json& config, v1::Model& model);

// Adds the keys that say which layers attend and which have experts.
void AddIntervals(const v1::Model& resolved, nlohmann::ordered_json& config);

}  // namespace tandem::jobspec
