// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/work_together.h"

#include <array>
#include <exception>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/exchange.h"
#include "checkpoint/folder.h"
#include "comm/communicator.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// The largest of all ranks decides.
enum State : int64_t { kDone, kWorks, kUnreadable, kTooNew, kDamaged };

State StateOf(const absl::Status& status, const Standing& own) {
  if (!status.ok()) {
    return IsDamage(status) ? kDamaged : absl::IsUnimplemented(status) ? kTooNew : kUnreadable;
  }
  return own.done ? kDone : kWorks;
}

// Collective: how far all are, or the error that all go by. `status`, and where it is OK `own`: this rank's.
absl::StatusOr<Standing> Meet(comm::Communicator& comm, const absl::Status& status, const Standing& own) {
  using Numbers = std::array<int64_t, 3>;
  Numbers sent = {StateOf(status, own), own.amount, own.total};
  std::vector<Numbers> received(static_cast<size_t>(comm.size()));
  comm.AllGather(device::MemoryOf(sent), device::MemoryOf(received));
  Standing all;
  int64_t worst = kDone;
  int first = 0;  // of the ranks whose state that is
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

absl::Status WorkTogether(comm::Communicator& comm, const std::function<absl::StatusOr<Standing>()>& part,
                          const std::function<void(const Standing& all)>& met) {
  Standing own;
  while (true) {
    const absl::Status status = StatusOfPart([&]() -> absl::Status {
      if (!own.done) {
        TANDEM_ASSIGN_OR_RETURN(own, part());
      }
      return absl::OkStatus();
    });
    TANDEM_ASSIGN_OR_RETURN(const Standing all, Meet(comm, status, own));
    met(all);
    if (all.done) {
      return absl::OkStatus();
    }
  }
}

absl::Status ReadTogether(comm::Communicator& comm, const std::string& path, Reading& reading,
                          const OnWorkProgress& on_progress) {
  return WorkTogether(
      comm,
      [&]() -> absl::StatusOr<Standing> {
        TANDEM_RETURN_IF_ERROR(reading.Advance(kMeetingBytes));
        return reading.standing();
      },
      [&](const Standing& all) { on_progress({.path = path, .done = all.amount, .total = all.total}); });
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
