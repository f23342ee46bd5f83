// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "data/text.h"
#include "parallel/topology.h"
#include "plan/job_plan.h"
#include "trainer/reporter.h"

namespace tandem::trainer {

// Reads one rank's share of a job's texts: its microbatches of steps and validations. Both load functions
// throw a UserError that names the place of a token outside the vocabulary.
class RankText {
 public:
  // `plan` must outlive this object. Throws data::DataError if a text cannot be opened.
  RankText(const plan::JobPlan& plan, int rank);

  const std::string& summary() const { return text_.summary; }  // one line about what is trained on
  const data::Loader& train() const { return train_; }
  data::Loader& train() { return train_; }

  // Returns, by training text, the number of windows taken by the end of a step.
  std::vector<int64_t> TakenAfter(int64_t step) const;
  // Returns, by the name of a training text, the number of epochs read by the end of a step. Empty if the
  // only text has no name, or if there are more texts than a report has room for.
  std::vector<std::pair<std::string, double>> EpochsAfter(int64_t step) const;

  // The extent of a validation text. A job without validation has no such texts.
  const ValidationExtent& extent(size_t text) const { return validations_[text].extent; }
  // Returns, by text, the number of rounds of one validation on this rank.
  std::vector<int64_t> validation_rounds() const;

  // Writes this rank's microbatch of a round of a step to `tokens`, which has row_elements() of train() for
  // each sequence. Also starts to read the next microbatch from disk.
  void LoadStep(int64_t step, int64_t round, int64_t* tokens) const;
  // Writes this rank's microbatch of a round of a validation after `step` to `tokens`. Every validation uses
  // the same windows of the text. In the last rounds, ranks without windows of their own use other ranks'
  // windows again; those losses do not count.
  void LoadValidation(size_t text, int64_t step, int64_t round, int64_t* tokens) const;

 private:
  struct ValidationText {
    data::Loader loader;
    ValidationExtent extent;
  };

  void AddValidation(const std::shared_ptr<const data::TokenSource>& source, const jobspec::DataText& named,
                     int rank);
  void Load(const data::Loader& loader, int64_t step, int64_t microbatch, int64_t microbatches,
            int64_t* tokens) const;

  const plan::JobPlan& plan_;
  const parallel::Topology topology_;
  const data::SplitText text_;
  data::Loader train_;
  std::vector<ValidationText> validations_;
};

// Divides one validation of a rank into runs of `validate`, one text after the other, and collects their
// losses, which do not depend on the number of runs. Not thread-safe.
class Validation {
 public:
  // One run of `validate`: the text and its first round.
  struct Piece {
    size_t text = 0;
    int64_t first_round = 0;
  };

  // `rounds` has the number of rounds of each text, each >= 1, for at least one text. A run has piece_rounds
  // >= 1 rounds; in the last run of a text some of them may not be needed.
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

  // Must be called when the oldest run in flight has ended, with its losses by round.
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
