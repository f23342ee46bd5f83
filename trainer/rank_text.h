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
  // `plan` outlives this object. Throws data::DataError if a text cannot be opened.
  RankText(const plan::JobPlan& plan, int rank);

  const std::string& summary() const { return text_.summary; }  // one line about what is trained on
  const data::Loader& train() const { return train_; }
  data::Loader& train() { return train_; }

  // How many windows of each training text are taken by the end of a step.
  std::vector<int64_t> TakenAfter(int64_t step) const;
  // For several training texts: by name, how many epochs are read by the end of a step. Empty if there is
  // only one text, or more than a report has room for.
  std::vector<std::pair<std::string, double>> EpochsAfter(int64_t step) const;

  // The extent of a text that is validated. A job without validation has no such texts.
  const ValidationExtent& extent(size_t text) const { return validations_[text].extent; }
  // By text, the rounds of one validation on this rank.
  std::vector<int64_t> validation_rounds() const;

  // Writes this rank's microbatch of a round of a step to `tokens`, which has row_elements() of train() for
  // each sequence. Also asks the disk for the next microbatch.
  void LoadStep(int64_t step, int64_t round, int64_t* tokens) const;
  // Does the same for a validation after `step`, which takes fixed windows of that text. In the last rounds,
  // ranks without windows of their own take windows again; those losses do not count.
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
