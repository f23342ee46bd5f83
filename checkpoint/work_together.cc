// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/work_together.h"

#include <algorithm>
#include <array>
#include <exception>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "comm/communicator.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// Collective. Sends every rank's text to every rank, or if `to_root` to rank 0 alone. Returns them in rank
// order.
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
  // The first character of a text encodes the error.
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

namespace {

// The largest state of any rank decides.
enum State : int64_t { kDone, kWorks, kUnreadable, kTooNew, kDamaged };

State StateOf(const absl::Status& status, const RankProgress& own) {
  if (!status.ok()) {
    return IsDamage(status) ? kDamaged : absl::IsUnimplemented(status) ? kTooNew : kUnreadable;
  }
  return own.done ? kDone : kWorks;
}

// Collective. Returns the progress of all ranks, or the error on which they agree. `status` and, if it is
// OK, `own` are this rank's.
absl::StatusOr<RankProgress> Meet(comm::Communicator& comm, const absl::Status& status,
                                  const RankProgress& own) {
  using Numbers = std::array<int64_t, 3>;
  Numbers sent = {StateOf(status, own), own.amount, own.total};
  std::vector<Numbers> received(static_cast<size_t>(comm.size()));
  comm.AllGather(device::MemoryOf(sent), device::MemoryOf(received));
  RankProgress all;
  int64_t worst = kDone;
  int first = 0;  // the first rank in that state
  for (int rank = 0; rank < comm.size(); ++rank) {
    const Numbers& of_rank = received[static_cast<size_t>(rank)];
    if (of_rank[0] > worst) {
      worst = of_rank[0];
      first = rank;
    }
    all.amount += of_rank[1];
    all.total += of_rank[2];
  }
  all.done = worst == kDone;
  if (worst <= kWorks) {
    return all;
  }
  const std::string text = ExchangeTexts(comm, std::string(status.message()))[static_cast<size_t>(first)];
  if (worst == kDamaged) {
    return absl::InvalidArgumentError(text);
  }
  const std::string named = first == 0 ? text : absl::StrCat("rank ", first, ": ", text);
  return worst == kTooNew ? absl::UnimplementedError(named) : absl::UnavailableError(named);
}

}  // namespace

absl::Status WorkTogether(comm::Communicator& comm, const std::string& path,
                          const std::function<absl::StatusOr<RankProgress>()>& part,
                          const OnWorkProgress& on_progress) {
  RankProgress own;
  while (true) {
    const absl::Status status = StatusOfPart([&]() -> absl::Status {
      if (!own.done) {
        TANDEM_ASSIGN_OR_RETURN(own, part());
      }
      return absl::OkStatus();
    });
    TANDEM_ASSIGN_OR_RETURN(const RankProgress all, Meet(comm, status, own));
    on_progress({.path = path, .done = all.amount, .total = all.total});
    if (all.done) {
      return absl::OkStatus();
    }
  }
}

absl::Status AgreeOnReading(comm::Communicator& comm, const absl::Status& status) {
  return Meet(comm, status, {.done = true}).status();
}

absl::Status StatusOfPart(const std::function<absl::Status()>& part) {
  try {
    return part();
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace tandem::checkpoint
