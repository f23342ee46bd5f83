// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::trainer {

// One validation on one rank, of one text after the other: as many runs of `validate` as it takes. The losses
// do not show how many these were. Not thread-safe.
class Validation {
 public:
  // A run of `validate`: from which round on of which text.
  struct Piece {
    size_t text = 0;
    int64_t first_round = 0;
  };

  // rounds: of each text, >= 1, at least one text; piece_rounds: of a run, >= 1. The last run of a text may
  // have rounds too many.
  Validation(std::vector<int64_t> rounds, int64_t piece_rounds)
      : rounds_(std::move(rounds)), piece_rounds_(piece_rounds), losses_(rounds_.size()) {}

  bool has_next() const { return next_.text < rounds_.size(); }
  // Requires has_next().
  Piece Next() {
    const Piece piece = next_;
    next_.first_round += piece_rounds_;
    if (next_.first_round >= rounds_[next_.text]) {
      next_ = {.text = next_.text + 1};
    }
    return piece;
  }

  // The losses of the oldest run that has not ended, by round.
  void Ended(const std::vector<double>& losses) {
    std::vector<double>& all = losses_.at(ended_texts_);
    all.insert(all.end(), losses.begin(), losses.end());
    ended_texts_ += static_cast<int64_t>(all.size()) >= rounds_[ended_texts_] ? 1 : 0;
  }

  bool complete() const { return ended_texts_ == rounds_.size(); }
  // Of each text, by round. Requires complete().
  std::vector<std::vector<double>> TakeLosses() {
    for (size_t text = 0; text < rounds_.size(); ++text) {
      losses_[text].resize(static_cast<size_t>(rounds_[text]));
    }
    return std::move(losses_);
  }

 private:
  const std::vector<int64_t> rounds_;
  const int64_t piece_rounds_;
  Piece next_;
  size_t ended_texts_ = 0;
  std::vector<std::vector<double>> losses_;
};

}  // namespace tandem::trainer
