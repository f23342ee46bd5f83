// SPDX-License-Identifier: Apache-2.0
#include "model/expert_row_limit.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace tandem::model {

double ExpectedFill(const MixtureOfExperts& moe) {
  if (moe.router.deals) {  // it deals a token to experts that lie apart
    return std::min(1.0, static_cast<double>(moe.router.top_k) / static_cast<double>(moe.ranks));
  }
  // The probability that none of a token's k different experts is among the E / P experts of the rank.
  double none = 1;
  const auto experts = static_cast<double>(moe.router.experts);
  const double elsewhere = experts - experts / static_cast<double>(moe.ranks);
  for (int64_t j = 0; j < moe.router.top_k; ++j) {
    const auto drawn = static_cast<double>(j);
    none *= std::max(0.0, elsewhere - drawn) / (experts - drawn);
  }
  return 1 - none;
}

int64_t RowsOfRoom(const MixtureOfExperts& moe, double multiple, int64_t tokens) {
  const double expected = ExpectedFill(moe) * static_cast<double>(moe.ranks * tokens);
  // A product that is a whole number except for rounding counts as that number.
  return static_cast<int64_t>(std::ceil(multiple * expected * (1 - 1e-12)));
}

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
