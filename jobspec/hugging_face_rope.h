// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// rope_scaling of a config.json, or rope_parameters as transformers 5 writes it, whose types are linear,
// llama3 and yarn: fills `scaling`, and leaves it empty where the type is default. config: the whole file.
// Returns what is wrong, as "factor is missing"; empty: nothing.
std::string ReadRopeScaling(const nlohmann::json& config, const nlohmann::json& rope,
                            v1::RopeScaling& scaling);

// The same for a config.json that is written: rope_scaling, with the names of published files.
nlohmann::ordered_json RopeScalingJson(const v1::RopeScaling& scaling);

}  // namespace tandem::jobspec
