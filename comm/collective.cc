// SPDX-License-Identifier: Apache-2.0
#include "comm/collective.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace tandem::comm {
namespace {

constexpr char kRows[] = "AllToAllRows";
constexpr char kTransfer[] = "Transfer";

int64_t SumOf(const std::vector<int64_t>& numbers, int first) {
  return std::accumulate(numbers.begin(), numbers.begin() + first, int64_t{0});
}

[[noreturn]] void Refuse(const std::string& group, const char* operation, const std::string& reason) {
  throw std::invalid_argument(std::string(operation) + " in group " + group + ": " + reason);
}

Collective Check(const char* operation, const std::string& group, int64_t input_slices, int size,
                 Memory input, Memory output) {
  if (input.bytes % input_slices != 0 || input.bytes / input_slices * size != output.bytes) {
    Refuse(group, operation,
           std::to_string(input.bytes) + " bytes into " + std::to_string(output.bytes) + " do not fit " +
               std::to_string(size) + " ranks");
  }
  return {.operation = operation,
          .input = input.begin,
          .output = output.bytes == 0 ? nullptr : output.begin,
          .slice = input.bytes / input_slices};
}

// Returns the bytes of each rank's rows in `memory`, which must hold all rows.
std::vector<int64_t> BytesOfRows(const std::string& group, int size, const std::vector<int64_t>& rows,
                                 Memory memory, int64_t row_bytes) {
  std::vector<int64_t> bytes;
  for (const int64_t of_rank : rows) {
    if (of_rank < 0) {
      Refuse(group, kRows, std::to_string(of_rank) + " rows for a rank");
    }
    bytes.push_back(of_rank * row_bytes);
  }
  if (static_cast<int>(rows.size()) != size || SumOf(bytes, size) > memory.bytes) {
    Refuse(group, kRows,
           "rows for " + std::to_string(rows.size()) + " ranks, of " + std::to_string(row_bytes) +
               " bytes each, do not fit " + std::to_string(size) + " ranks and " +
               std::to_string(memory.bytes) + " bytes");
  }
  return bytes;
}

// Returns by rank: no bytes for `rank`, and all bytes of `memory` for the other rank.
std::vector<int64_t> BytesOfPeer(const std::string& group, int rank, int size, Memory memory) {
  if (size != 2) {
    Refuse(group, kTransfer, "it is of two ranks, and this group has " + std::to_string(size));
  }
  std::vector<int64_t> bytes(2, 0);
  bytes[1 - rank] = memory.bytes;
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

Collective CheckAllGather(const std::string& group, int size, Memory input, Memory output) {
  return Check("AllGather", group, 1, size, input, output);
}

Collective CheckAllToAll(const std::string& group, int size, Memory input, Memory output) {
  Collective call = Check("AllToAll", group, size, size, input, output);
  call.scatters = true;
  return call;
}

Collective CheckAllToAllRows(const std::string& group, int size, Memory input,
                             const std::vector<int64_t>& sends, Memory output,
                             const std::vector<int64_t>& receives, int64_t row_bytes) {
  return {.operation = kRows,
          .input = input.begin,
          .output = output.bytes == 0 ? nullptr : output.begin,
          .scatters = true,
          .sends = BytesOfRows(group, size, sends, input, row_bytes),
          .receives = BytesOfRows(group, size, receives, output, row_bytes)};
}

Collective CheckGather(const std::string& group, int rank, int size, Memory input, Memory output) {
  const bool is_root = rank == 0;
  Collective call = is_root ? Check("Gather", group, 1, size, input, output)
                            : Collective{.operation = "Gather", .input = input.begin};
  call.sends.assign(size, 0);
  call.sends[0] = input.bytes;
  call.receives.assign(size, is_root ? input.bytes : 0);
  call.slice = 0;
  return call;
}

Collective CheckSend(const std::string& group, int rank, int size, Memory input) {
  return {.operation = kTransfer,
          .input = input.begin,
          .scatters = true,
          .sends = BytesOfPeer(group, rank, size, input),
          .receives = {0, 0}};
}

Collective CheckReceive(const std::string& group, int rank, int size, Memory output) {
  return {.operation = kTransfer,
          .output = output.bytes == 0 ? nullptr : output.begin,
          .scatters = true,
          .sends = {0, 0},
          .receives = BytesOfPeer(group, rank, size, output)};
}

}  // namespace tandem::comm
