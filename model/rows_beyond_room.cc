// SPDX-License-Identifier: Apache-2.0
#include "model/rows_beyond_room.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace tandem::model {

void CheckRoom(const MixtureOfExperts& moe, int64_t tokens, int64_t room, absl::Span<const int64_t> counts) {
  int64_t fullest = 0;
  int64_t most = 0;
  for (int64_t to = 0; to < moe.ranks; ++to) {
    int64_t received = 0;
    for (int64_t from = 0; from < moe.ranks; ++from) {
      received += counts[from * moe.ranks + to];
    }
    if (received > most) {
      fullest = to;
      most = received;
    }
  }
  if (most <= room) {
    return;
  }
  const double expected = ExpectedFill(moe) * static_cast<double>(moe.ranks * tokens);
  const double suffices = std::ceil(static_cast<double>(most) / expected * 100) / 100;
  throw RowsBeyondRoom(absl::StrCat("rank ", fullest, " of the ", moe.ranks, " that share experts is sent ",
                                    most, " rows, and has room for ", room,
                                    " (parallelism.dispatch.most_rows: ", moe.most_rows, "); give ", suffices,
                                    " or more, or omit the key, and submit again (from a checkpoint: "
                                    "--resume newest)"));
}

}  // namespace tandem::model
