// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "jobspec/hugging_face_families.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Takes a value with its key, what is allowed, and what to do.
using RefuseKey =
    std::function<void(const std::string& value, const std::string& allowed, const std::string& remedy)>;

// Sets model.sliding_window, and window_layers where not all layers have it, from what `config` says in the
// keys of its family, unless the job has a window of its own. layer_types, where the file has it, must agree
// with the other keys.
void ReadSlidingWindow(const nlohmann::json& config, WindowKeys keys, v1::Model& model,
                       const RefuseKey& refuse);

}  // namespace tandem::jobspec
