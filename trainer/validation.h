// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::trainer {

// One validation on one rank: as many runs of `validate` as it takes. The losses do not show how many these
// were. Not thread-safe.
class Validation {
 public:
  // rounds: of the whole validation; piece_rounds: of a run, >= 1. The last run may have rounds too many.
  Validation(int64_t rounds, int64_t piece_rounds) : rounds_(rounds), piece_rounds_(piece_rounds) {}

  bool has_next() const { return issued_ < rounds_; }
  // The first round of the next run. Requires has_next().
  int64_t Next() { return std::exchange(issued_, issued_ + piece_rounds_); }

  // The losses of the oldest run that has not ended, by round.
  void Ended(const std::vector<double>& losses) {
    losses_.insert(losses_.end(), losses.begin(), losses.end());
  }

  bool complete() const { return static_cast<int64_t>(losses_.size()) >= rounds_; }
  // Of the whole validation, by round. Requires complete().
  std::vector<double> TakeLosses() {
    losses_.resize(static_cast<size_t>(rounds_));
    return std::move(losses_);
  }

 private:
  const int64_t rounds_;
  const int64_t piece_rounds_;
  int64_t issued_ = 0;  // rounds
  std::vector<double> losses_;
};

}  // namespace tandem::trainer
