// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "jobspec/hugging_face_families.h"
#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Called for a refused value. `value` is the key and its value ("sliding_window 0").
using RefuseKey =
    std::function<void(const std::string& value, const std::string& allowed, const std::string& remedy)>;

// Sets model.sliding_window, and window_layers if not all layers have a window. `keys` says which keys of the
// file count. Fields that the job has set are not changed. If the file has layer_types, it must agree with
// the other keys.
void ReadSlidingWindow(const nlohmann::json& config, WindowKeys keys, v1::Model& model,
                       const RefuseKey& refuse);

}  // namespace tandem::jobspec
