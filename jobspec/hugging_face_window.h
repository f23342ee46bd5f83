// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "jobspec/hugging_face_families.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Called with a value, its key, what is allowed, and what to do.
using RefuseKey =
    std::function<void(const std::string& value, const std::string& allowed, const std::string& remedy)>;

// Sets model.sliding_window, and window_layers if not all layers have a window, from the keys of the file's
// family. Fields that the job sets stay. If the file has layer_types, it must agree with the other keys.
void ReadSlidingWindow(const nlohmann::json& config, WindowKeys keys, v1::Model& model,
                       const RefuseKey& refuse);

}  // namespace tandem::jobspec
