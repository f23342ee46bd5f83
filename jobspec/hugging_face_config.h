// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tandem/v1/job.pb.h"

namespace tandem::jobspec {

// Reads model.hugging_face, a config.json or its folder: fills the fields that the job leaves out, and clears
// the path. Returns violations, and keeps the path, if the file cannot be read, or is of a model that Tandem
// would compute differently.
std::vector<v1::Violation> ReadHuggingFace(v1::Model& model);

}  // namespace tandem::jobspec
