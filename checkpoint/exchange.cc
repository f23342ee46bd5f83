// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/exchange.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"

namespace tandem::checkpoint {

namespace {

// Collective: every rank's text, in rank order, on every rank, or with to_root on rank 0 alone.
std::vector<std::string> SendTexts(comm::Communicator& comm, const std::string& text, bool to_root) {
  std::array own_size = {text.size()};
  std::vector<size_t> sizes(static_cast<size_t>(comm.size()));
  comm.AllGather(device::MemoryOf(own_size), device::MemoryOf(sizes));
  const size_t longest = *std::max_element(sizes.begin(), sizes.end());
  const bool receives = !to_root || comm.rank() == 0;
  std::vector<std::string> result;
  if (longest == 0) {
    result.resize(receives ? sizes.size() : 0);
    return result;
  }

  std::string own = text;
  own.resize(longest);
  std::string texts(receives ? sizes.size() * longest : 0, 0);
  if (to_root) {
    comm.Gather(device::MemoryOf(own), device::MemoryOf(texts));
  } else {
    comm.AllGather(device::MemoryOf(own), device::MemoryOf(texts));
  }
  for (size_t rank = 0; receives && rank < sizes.size(); ++rank) {
    result.push_back(texts.substr(rank * longest, sizes[rank]));
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
