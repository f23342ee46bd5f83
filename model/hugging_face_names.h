// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "schedules/program/outline.h"

namespace tandem::model {

// The name in Hugging Face's safetensors of a parameter that a kind of node declares (node_declaration.h), in
// layer `layer`: "model.layers.3.mlp.gate_proj.weight". Throws std::logic_error for one that the table does
// not have.
std::string HuggingFaceName(schedules::NodeKind kind, const std::string& parameter, int layer);

}  // namespace tandem::model
