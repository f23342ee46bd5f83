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

// What one rank reads of a job's texts: its microbatches of the steps and of the validations. Both functions
// that load throw a UserError that names the place of a token beyond the vocabulary.
class RankText {
 public:
  // `plan` outlives it. Throws where a text cannot be opened.
  RankText(const plan::JobPlan& plan, int rank);

  const std::string& summary() const { return text_.summary; }  // of what is trained on, in one line
  const data::Loader& train() const { return train_; }
  data::Loader& train() { return train_; }

  // How many windows of each training text are taken by the end of a step.
  std::vector<int64_t> TakenAfter(int64_t step) const;
  // How many epochs of each of several training texts, by their names, are read by then. Empty of one text,
  // and of more than a report has room for.
  std::vector<std::pair<std::string, double>> EpochsAfter(int64_t step) const;

  // Of one of the texts to validate on; a job that does not validate has none.
  const ValidationExtent& extent(size_t text) const { return validations_[text].extent; }
  // Of one validation, on this rank, by text.
  std::vector<int64_t> validation_rounds() const;

  // This rank's microbatch of that round of a step. tokens: [row_elements() of train()] for each sequence.
  // Asks the disk for the microbatch that comes next, too.
  void LoadStep(int64_t step, int64_t round, int64_t* tokens) const;
  // The same of a validation behind `step`, in the fixed windows of that text. Ranks that are left over in
  // the last rounds take windows again; those losses are not counted.
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
