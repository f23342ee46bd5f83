// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Reads `rope`, the value of rope_scaling or of transformers 5's rope_parameters in the file `config`, into
// `scaling`. The type in `rope` must be linear, llama3, yarn, or default, which leaves `scaling` empty.
// Returns what is wrong, such as "factor is missing"; an empty string if nothing is.
std::string ReadRopeScaling(const nlohmann::json& config, const nlohmann::json& rope,
                            v1::RopeScaling& scaling);

// The value of rope_scaling in a config.json, with the keys of transformers 4.
nlohmann::ordered_json RopeScalingJson(const v1::RopeScaling& scaling);

}  // namespace tandem::jobspec
