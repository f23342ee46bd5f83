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

namespace {

// Collective: every rank's text, in rank order, on every rank, or with to_root on rank 0 alone.
std::vector<std::string> SendTexts(comm::Communicator& comm, const std::string& text, bool to_root) {
  const auto size = static_cast<int64_t>(text.size());
  const at::Tensor own_size = at::empty({1}, at::kLong);
  *own_size.mutable_data_ptr<int64_t>() = size;
  at::Tensor sizes = at::empty({comm.size()}, at::kLong);
  comm.AllGather(own_size, sizes);
  const int64_t* const all = sizes.const_data_ptr<int64_t>();
  const int64_t longest = *std::max_element(all, all + comm.size());
  const bool receives = !to_root || comm.rank() == 0;
  std::vector<std::string> result;
  if (longest == 0) {
    result.resize(receives ? static_cast<size_t>(comm.size()) : 0);
    return result;
  }

  const at::Tensor own = at::zeros({longest}, at::kByte);
  std::memcpy(own.mutable_data_ptr(), text.data(), text.size());
  at::Tensor texts = at::empty({receives ? comm.size() * longest : 0}, at::kByte);
  if (to_root) {
    comm.Gather(own, texts);
  } else {
    comm.AllGather(own, texts);
  }
  for (int64_t rank = 0; receives && rank < comm.size(); ++rank) {
    const char* const begin = static_cast<const char*>(texts.const_data_ptr()) + rank * longest;
    result.emplace_back(begin, begin + all[rank]);
  }
  return result;
}

}  // namespace

std::vector<std::string> ExchangeTexts(comm::Communicator& comm, const std::string& text) {
  return SendTexts(comm, text, /*to_root=*/false);
}

std::vector<std::string> GatherTexts(comm::Communicator& comm, const std::string& text) {
  return SendTexts(comm, text, /*to_root=*/true);
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
