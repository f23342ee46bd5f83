// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_type.h"

#include <ATen/core/Tensor.h>

#include "checkpoint/checkpoint.h"

namespace tandem::checkpoint {

std::string SafetensorsDtype(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    case at::kBFloat16:
      return "BF16";
    case at::kLong:
      return "I64";
    case at::kByte:
      return "U8";
    default:
      throw CheckpointError(std::string("checkpoint: arrays of ") + c10::toString(tensor.scalar_type()) +
                            " cannot be saved");
  }
}

}  // namespace tandem::checkpoint
