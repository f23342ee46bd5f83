// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace tandem::trainer
