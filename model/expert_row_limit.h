// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>

#include "absl/types/span.h"
#include "model/config.h"

namespace tandem::model {

// The expected fraction of a rank's tokens that choose at least one expert of a given rank, if the router is
// balanced.
double ExpectedFill(const MixtureOfExperts& moe);

// `multiple` times the number of rows that a rank receives if routers are balanced and each rank has `tokens`
// tokens.
int64_t RowsOfRoom(const MixtureOfExperts& moe, double multiple, int64_t tokens);

// Thrown if a router sends a rank more rows than parallelism.dispatch.most_rows allows. what() states the
// rank, the number of rows, and the smallest multiple that would be enough. All ranks that share the experts
// throw the same error.
class RowsBeyondRoom : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws RowsBeyondRoom if some rank receives more than `room` rows of a microbatch with `tokens` tokens a
// rank. `counts` is [moe.ranks, moe.ranks]: the number of rows from each rank (row) to each rank (column).
void CheckRoom(const MixtureOfExperts& moe, int64_t tokens, int64_t room, absl::Span<const int64_t> counts);

}  // namespace tandem::model
