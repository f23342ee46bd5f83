// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  bool scatters = false;   // every rank gets another slice of the input
  // Where ranks do not send each other as much: bytes by rank, in input and output one behind the other.
  std::vector<int64_t> sends;
  std::vector<int64_t> receives;

  // Nothing goes from this rank to any or comes to it.
  bool IsEmpty() const;
  int64_t BytesTo(int rank) const { return sends.empty() ? slice : sends[rank]; }
  int64_t BytesFrom(int rank) const { return receives.empty() ? slice : receives[rank]; }
  const char* InputFor(int rank) const;
  char* OutputOf(int rank) const;
};

// Throw std::invalid_argument, naming `group`, for tensors that are not contiguous or whose sizes do not fit.
Collective CheckAllGather(const std::string& group, int size, const at::Tensor& input, at::Tensor& output);
Collective CheckAllToAll(const std::string& group, int size, const at::Tensor& input, at::Tensor& output);
Collective CheckAllToAllRows(const std::string& group, int size, const at::Tensor& input,
                             const std::vector<int64_t>& sends, at::Tensor& output,
                             const std::vector<int64_t>& receives);
// `output` is looked at on rank 0; elsewhere the result has none.
Collective CheckGather(const std::string& group, int rank, int size, const at::Tensor& input,
                       at::Tensor& output);

}  // namespace tandem::comm
