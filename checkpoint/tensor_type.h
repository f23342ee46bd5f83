// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace tandem::checkpoint {

// A type of elements as safetensors names it. Throws CheckpointError for those that it has no name for.
std::string SafetensorsDtype(c10::ScalarType type);

}  // namespace tandem::checkpoint
