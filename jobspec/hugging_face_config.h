// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Reads the config.json at the path model.hugging_face (the file or its folder), sets the fields of `model`
// that the job leaves out, and clears the path. If the file cannot be read, or Tandem would compute its model
// differently, returns violations and keeps the path.
std::vector<v1::Violation> ReadHuggingFace(v1::Model& model);

}  // namespace tandem::jobspec
