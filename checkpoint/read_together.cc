// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/read_together.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/exchange.h"
#include "checkpoint/folder.h"
#include "comm/communicator.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

// How a rank stands. The largest of all ranks decides.
enum State : int64_t { kDone, kReads, kUnreadable, kDamaged };

State StateOf(const absl::Status& status, bool done) {
  if (!status.ok()) {
    return IsDamage(status) ? kDamaged : kUnreadable;
  }
  return done ? kDone : kReads;
}

// What all ranks know after they have met.
struct Meeting {
  int64_t bytes = 0;  // that all have read
  int64_t total = 0;
  bool done = false;  // all of them
  absl::Status status;
};

// Collective.
Meeting Meet(comm::Communicator& comm, const absl::Status& status, bool done, int64_t bytes, int64_t total) {
  constexpr int64_t kWidth = 3;
  const at::Tensor own = at::empty({kWidth}, at::kLong);
  auto* const numbers = own.mutable_data_ptr<int64_t>();
  numbers[0] = StateOf(status, done);
  numbers[1] = bytes;
  numbers[2] = total;
  at::Tensor gathered = at::empty({kWidth * comm.size()}, at::kLong);
  comm.AllGather(own, gathered);
  const int64_t* const all = gathered.const_data_ptr<int64_t>();
  Meeting meeting;
  int64_t worst = kDone;
  int first = 0;  // of the ranks whose state that is
  for (int rank = 0; rank < comm.size(); ++rank) {
    const int64_t* const of_rank = all + rank * kWidth;
    if (of_rank[0] > worst) {
      worst = of_rank[0];
      first = rank;
    }
    meeting.bytes += of_rank[1];
    meeting.total += of_rank[2];
  }
  meeting.done = worst == kDone;
  if (worst <= kReads) {
    return meeting;
  }
  const std::string text = ExchangeTexts(comm, std::string(status.message()))[static_cast<size_t>(first)];
  if (worst == kDamaged) {
    meeting.status = absl::InvalidArgumentError(text);
  } else {
    meeting.status = absl::UnavailableError(first == 0 ? text : absl::StrCat("rank ", first, ": ", text));
  }
  return meeting;
}

}  // namespace

absl::Status ReadTogether(comm::Communicator& comm, const std::string& path, Reading& reading,
                          const OnReadProgress& on_progress) {
  while (true) {
    const absl::Status status = StatusOfPart([&] { return reading.Advance(kMeetingBytes); });
    const Meeting meeting = Meet(comm, status, reading.done(), reading.bytes(), reading.total());
    TANDEM_RETURN_IF_ERROR(meeting.status);
    on_progress({.path = path, .done = meeting.bytes, .total = meeting.total});
    if (meeting.done) {
      return absl::OkStatus();
    }
  }
}

absl::Status WorkTogether(comm::Communicator& comm, const std::function<bool()>& part) {
  bool done = false;
  while (true) {
    const absl::Status status = StatusOfPart([&] {
      done = done || part();
      return absl::OkStatus();
    });
    const Meeting meeting = Meet(comm, status, done, 0, 0);
    TANDEM_RETURN_IF_ERROR(meeting.status);
    if (meeting.done) {
      return absl::OkStatus();
    }
  }
}

absl::Status AgreeOnReading(comm::Communicator& comm, const absl::Status& status) {
  return Meet(comm, status, /*done=*/true, 0, 0).status;
}

absl::Status StatusOfPart(const std::function<absl::Status()>& part) {
  try {
    return part();
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace tandem::checkpoint
