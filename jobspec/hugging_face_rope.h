// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Reads rope_scaling of a config.json (`config` is the whole file), or rope_parameters as transformers 5
// writes it, of type linear, llama3 or yarn, into `scaling`. Leaves it empty if the type is default. Returns
// what is wrong, such as "factor is missing"; empty: nothing.
std::string ReadRopeScaling(const nlohmann::json& config, const nlohmann::json& rope,
                            v1::RopeScaling& scaling);

// The value of rope_scaling in a config.json, with the names of published files.
nlohmann::ordered_json RopeScalingJson(const v1::RopeScaling& scaling);

}  // namespace tandem::jobspec
