// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace at {
class Tensor;
}

namespace tandem::checkpoint {

// Of a tensor's elements, as safetensors names it. Throws CheckpointError for types that it has no name for.
std::string SafetensorsDtype(const at::Tensor& tensor);

}  // namespace tandem::checkpoint
