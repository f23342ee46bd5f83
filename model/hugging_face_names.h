// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/config.h"
#include "schedules/program/outline.h"

namespace tandem::model {

// The name in Hugging Face's safetensors of a parameter that a kind of node declares (node_declaration.h), in
// layer `layer`: "model.layers.3.mlp.gate_proj.weight". Of experts, `parameter` ends in the number of one:
// "gate.5". Throws std::logic_error for one that the table does not have.
std::string HuggingFaceName(Architecture architecture, schedules::NodeKind kind, const std::string& parameter,
                            int layer);

}  // namespace tandem::model
