// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::trainer {

// One validation on one rank, one text after the other, in as many runs of `validate` as it needs. The losses
// do not depend on the number of runs. Not thread-safe.
class Validation {
 public:
  // One run of `validate`: the text and its first round.
  struct Piece {
    size_t text = 0;
    int64_t first_round = 0;
  };

  // `rounds` are those of each text, each >= 1; there is at least one text. A run has piece_rounds >= 1
  // rounds. The last run of a text may have more rounds than needed.
  Validation(std::vector<int64_t> rounds, int64_t piece_rounds)
      : rounds_(std::move(rounds)), piece_rounds_(piece_rounds), losses_(rounds_.size()) {}

  bool has_next() const { return next_.text < rounds_.size(); }
  // The next run. Requires has_next().
  Piece Next() {
    const Piece piece = next_;
    next_.first_round += piece_rounds_;
    if (next_.first_round >= rounds_[next_.text]) {
      next_ = {.text = next_.text + 1};
    }
    return piece;
  }

  // Takes the losses, by round, of the oldest run that has not ended.
  void Ended(const std::vector<double>& losses) {
    std::vector<double>& all = losses_.at(ended_texts_);
    all.insert(all.end(), losses.begin(), losses.end());
    ended_texts_ += static_cast<int64_t>(all.size()) >= rounds_[ended_texts_] ? 1 : 0;
  }

  bool complete() const { return ended_texts_ == rounds_.size(); }
  // By text and round. Requires complete().
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
