// SPDX-License-Identifier: Apache-2.0
#include "comm/collective.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace tandem::comm {
namespace {

constexpr char kTransfer[] = "Transfer";

int64_t SumOf(const std::vector<int64_t>& numbers, int first) {
  return std::accumulate(numbers.begin(), numbers.begin() + first, int64_t{0});
}

[[noreturn]] void Refuse(const std::string& group, const char* operation, const std::string& reason) {
  throw std::invalid_argument(std::string(operation) + " in group " + group + ": " + reason);
}

Collective Check(const char* operation, const std::string& group, int64_t input_slices, int size,
                 const at::Tensor& input, at::Tensor& output) {
  if (!input.is_contiguous() || !output.is_contiguous()) {
    Refuse(group, operation, "tensors must be contiguous");
  }
  if (input.scalar_type() != output.scalar_type()) {
    Refuse(group, operation, "input and output differ in dtype");
  }
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

// Bytes of rows for each rank, of a matrix that has as many.
std::vector<int64_t> BytesOfRows(const char* operation, const std::string& group, int size,
                                 const std::vector<int64_t>& rows, const at::Tensor& matrix) {
  std::vector<int64_t> bytes;
  for (const int64_t of_rank : rows) {
    if (of_rank < 0) {
      Refuse(group, operation, std::to_string(of_rank) + " rows for a rank");
    }
    bytes.push_back(of_rank * matrix.size(1) * static_cast<int64_t>(matrix.itemsize()));
  }
  if (static_cast<int>(rows.size()) != size || SumOf(rows, size) > matrix.size(0)) {
    Refuse(group, operation,
           "rows for " + std::to_string(rows.size()) + " ranks do not fit " + std::to_string(size) +
               " ranks and " + std::to_string(matrix.size(0)) + " rows");
  }
  return bytes;
}

}  // namespace

bool Collective::IsEmpty() const {
  const auto none = [](const std::vector<int64_t>& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](int64_t of_rank) { return of_rank == 0; });
  };
  return slice == 0 && none(sends) && none(receives);
}

const char* Collective::InputFor(int rank) const {
  return sends.empty() ? input + (scatters ? rank * slice : 0) : input + SumOf(sends, rank);
}

char* Collective::OutputOf(int rank) const {
  return output + (receives.empty() ? rank * slice : SumOf(receives, rank));
}

Collective CheckAllGather(const std::string& group, int size, const at::Tensor& input, at::Tensor& output) {
  return Check("AllGather", group, 1, size, input, output);
}

Collective CheckAllToAll(const std::string& group, int size, const at::Tensor& input, at::Tensor& output) {
  Collective call = Check("AllToAll", group, size, size, input, output);
  call.scatters = true;
  return call;
}

Collective CheckAllToAllRows(const std::string& group, int size, const at::Tensor& input,
                             const std::vector<int64_t>& sends, at::Tensor& output,
                             const std::vector<int64_t>& receives) {
  static constexpr char kOperation[] = "AllToAllRows";
  if (input.dim() != 2 || output.dim() != 2 || input.size(1) != output.size(1) || !input.is_contiguous() ||
      !output.is_contiguous() || input.scalar_type() != output.scalar_type()) {
    Refuse(group, kOperation, "input and output must be contiguous matrices of one width and dtype");
  }
  return {.operation = kOperation,
          .input = input.numel() == 0 ? nullptr : static_cast<const char*>(input.const_data_ptr()),
          .output = output.numel() == 0 ? nullptr : static_cast<char*>(output.mutable_data_ptr()),
          .scatters = true,
          .sends = BytesOfRows(kOperation, group, size, sends, input),
          .receives = BytesOfRows(kOperation, group, size, receives, output)};
}

Collective CheckGather(const std::string& group, int rank, int size, const at::Tensor& input,
                       at::Tensor& output) {
  if (rank == 0) {
    return Check("Gather", group, 1, size, input, output);
  }
  if (!input.is_contiguous()) {
    Refuse(group, "Gather", "tensors must be contiguous");
  }
  const auto bytes = static_cast<int64_t>(input.nbytes());
  return {.operation = "Gather",
          .input = bytes == 0 ? nullptr : static_cast<const char*>(input.const_data_ptr()),
          .slice = bytes};
}

namespace {

// By rank: none for `rank`, those of the tensor for the other.
std::vector<int64_t> BytesOfPeer(const std::string& group, int rank, int size, const at::Tensor& tensor) {
  if (size != 2) {
    Refuse(group, kTransfer, "it is of two ranks, and this group has " + std::to_string(size));
  }
  if (!tensor.is_contiguous()) {
    Refuse(group, kTransfer, "tensors must be contiguous");
  }
  std::vector<int64_t> bytes(2, 0);
  bytes[1 - rank] = static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

Collective CheckSend(const std::string& group, int rank, int size, const at::Tensor& input) {
  return {.operation = kTransfer,
          .input = input.numel() == 0 ? nullptr : static_cast<const char*>(input.const_data_ptr()),
          .scatters = true,
          .sends = BytesOfPeer(group, rank, size, input),
          .receives = {0, 0}};
}

Collective CheckReceive(const std::string& group, int rank, int size, at::Tensor& output) {
  return {.operation = kTransfer,
          .output = output.numel() == 0 ? nullptr : static_cast<char*>(output.mutable_data_ptr()),
          .scatters = true,
          .sends = {0, 0},
          .receives = BytesOfPeer(group, rank, size, output)};
}

}  // namespace tandem::comm
