// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/exchange.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"

namespace tandem::checkpoint {

std::vector<std::string> ExchangeTexts(comm::Communicator& comm, const std::string& text) {
  const auto size = static_cast<int64_t>(text.size());
  const at::Tensor own_size = at::empty({1}, at::kLong);
  *own_size.mutable_data_ptr<int64_t>() = size;
  at::Tensor sizes = at::empty({comm.size()}, at::kLong);
  comm.AllGather(own_size, sizes);
  const int64_t* const all = sizes.const_data_ptr<int64_t>();
  const int64_t longest = *std::max_element(all, all + comm.size());
  if (longest == 0) {
    return std::vector<std::string>(static_cast<size_t>(comm.size()));
  }

  const at::Tensor own = at::zeros({longest}, at::kByte);
  std::memcpy(own.mutable_data_ptr(), text.data(), text.size());
  at::Tensor texts = at::empty({comm.size() * longest}, at::kByte);
  comm.AllGather(own, texts);
  std::vector<std::string> result;
  for (int64_t rank = 0; rank < comm.size(); ++rank) {
    const char* const begin = static_cast<const char*>(texts.const_data_ptr()) + rank * longest;
    result.emplace_back(begin, begin + all[rank]);
  }
  return result;
}

std::string TextOfRankZero(comm::Communicator& comm, const std::string& text) {
  return ExchangeTexts(comm, comm.rank() == 0 ? text : "")[0];
}

void AgreeOnSuccess(comm::Communicator& comm, const absl::Status& status) {
  // The first character says which error it is.
  constexpr char kLost = 'L';
  constexpr char kFailed = 'F';
  std::string error;
  if (!status.ok()) {
    error = absl::StrCat(std::string(1, absl::IsAborted(status) ? kLost : kFailed), status.message());
  }
  const std::vector<std::string> errors = ExchangeTexts(comm, error);
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank].empty()) {
      continue;
    }
    const std::string text = absl::StrCat("checkpoint: rank ", rank, ": ", errors[rank].substr(1));
    if (errors[rank][0] == kLost) {
      throw DirectoryLost(text);
    }
    throw CheckpointError(text);
  }
}

}  // namespace tandem::checkpoint
