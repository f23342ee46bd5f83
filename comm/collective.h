// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace at {
class Tensor;
}

namespace tandem::comm {

// The bytes of one collective on one rank, checked: what every implementation does first.
struct Collective {
  const char* operation = "";  // "AllGather"
  const char* input = nullptr;
  char* output = nullptr;  // null: nothing comes to this rank
  int64_t slice = 0;       // bytes that each rank sends to each rank
};

// Throw std::invalid_argument, naming `group`, for tensors that are not contiguous or whose sizes do not fit.
Collective CheckAllGather(const std::string& group, int size, const at::Tensor& input, at::Tensor& output);
Collective CheckAllToAll(const std::string& group, int size, const at::Tensor& input, at::Tensor& output);
// `output` is looked at on rank 0; elsewhere the result has none.
Collective CheckGather(const std::string& group, int rank, int size, const at::Tensor& input,
                       at::Tensor& output);

}  // namespace tandem::comm
