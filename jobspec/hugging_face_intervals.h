// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// The keys of a config.json of qwen3_next that say what its layers are.

// A value with its key, and what is allowed; both empty: nothing is wrong.
struct KeyProblem {
  std::string value;
  std::string allowed;
};

// Sets model.hybrid_pattern, unless the job has one. Every full_attention_interval-th layer attends, where
// layer_types does not say which do, and the others are gated delta nets. A layer is sparse where its number,
// from 1, is a multiple of decoder_sparse_step, unless mlp_only_layers lists it.
KeyProblem ReadIntervals(const nlohmann::json& config, v1::Model& model);

// Adds which layers attend, and which have experts.
void AddIntervals(const v1::Model& resolved, nlohmann::ordered_json& config);

}  // namespace tandem::jobspec
