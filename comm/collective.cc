// SPDX-License-Identifier: Apache-2.0
#include "comm/collective.h"

#include <ATen/core/Tensor.h>

#include <stdexcept>

namespace tandem::comm {
namespace {

[[noreturn]] void Refuse(const std::string& group, const char* operation, const std::string& reason) {
  throw std::invalid_argument(std::string(operation) + " in group " + group + ": " + reason);
}

Collective Check(const char* operation, const std::string& group, int64_t input_slices, int size,
                 const at::Tensor& input, at::Tensor& output) {
  if (!input.is_contiguous() || !output.is_contiguous())
    Refuse(group, operation, "tensors must be contiguous");
  if (input.scalar_type() != output.scalar_type())
    Refuse(group, operation, "input and output differ in dtype");
  const int64_t in = static_cast<int64_t>(input.nbytes());
  const int64_t out = static_cast<int64_t>(output.nbytes());
  if (input.numel() % input_slices != 0 || in / input_slices * size != out) {
    Refuse(group, operation,
           std::to_string(input.numel()) + " elements into " + std::to_string(output.numel()) +
               " do not fit " + std::to_string(size) + " ranks");
  }
  return {.operation = operation,
          .input = in == 0 ? nullptr : static_cast<const char*>(input.const_data_ptr()),
          .output = out == 0 ? nullptr : static_cast<char*>(output.mutable_data_ptr()),
          .slice = in / input_slices};
}

}  // namespace

Collective CheckAllGather(const std::string& group, int size, const at::Tensor& input, at::Tensor& output) {
  return Check("AllGather", group, 1, size, input, output);
}

Collective CheckAllToAll(const std::string& group, int size, const at::Tensor& input, at::Tensor& output) {
  return Check("AllToAll", group, size, size, input, output);
}

Collective CheckGather(const std::string& group, int rank, int size, const at::Tensor& input,
                       at::Tensor& output) {
  if (rank == 0) return Check("Gather", group, 1, size, input, output);
  if (!input.is_contiguous()) Refuse(group, "Gather", "tensors must be contiguous");
  const auto bytes = static_cast<int64_t>(input.nbytes());
  return {.operation = "Gather",
          .input = bytes == 0 ? nullptr : static_cast<const char*>(input.const_data_ptr()),
          .slice = bytes};
}

}  // namespace tandem::comm
