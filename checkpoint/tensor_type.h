// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace c10 {
enum class ScalarType : int8_t;
}

namespace tandem::checkpoint {

// A type of elements as safetensors names it. Throws CheckpointError for those that it has no name for.
std::string SafetensorsDtype(c10::ScalarType type);

}  // namespace tandem::checkpoint
