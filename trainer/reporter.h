// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/parameter_norms.h"
#include "tandem/v1/report.pb.h"
#include "trainer/router_load.h"
#include "trainer/task_thread.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

// How much of one text a validation reads.
struct ValidationExtent {
  std::string name;     // name of the text in the scalar validation_loss/NAME; empty if it has none
  int64_t batches = 0;  // number of global microbatches; the losses of further ones do not count
  double divisor = 0;   // of the sum of the losses: the targets that count, in units of a full microbatch
};

// A rank's share of a text's validation: the losses of its microbatches.
struct TextLosses {
  ValidationExtent extent;
  std::vector<double> losses;
};

// The data of one rank for the report of one optimizer step, or of the validation before the first step.
struct StepRecord {
  // The members that are the same on all ranks: step, gradient norm, number of gradients that are not finite,
  // learning rate, tokens and wall time. Rank 0 folds the other members of all ranks into it.
  v1::StepReport report;
  std::vector<double> losses;                     // one for each of this rank's microbatches
  std::vector<std::vector<double>> depth_losses;  // the same for each depth (model/depths.h)
  double divisor = 1;                  // divisor of the sum of all ranks' losses (fsdp::NormOutcome)
  std::vector<RouterLoad> routers;     // one for each sparse layer, in layer order
  std::vector<TextLosses> validation;  // by text; empty if no validation followed the step
  // Norms of the parameters in Reporter's `own`, in that order. Unset on all ranks if norms are not
  // requested.
  std::optional<std::vector<fsdp::ParameterNorms>> norms;
};

// A parameter whose gradient is not finite.
struct NonfiniteGradient {
  int64_t parameter = 0;  // index in the table
  int rank = 0;           // a rank that holds such elements
  bool operator==(const NonfiniteGradient&) const = default;
};

// Gathers the StepRecords of all ranks on rank 0 and folds them into one report, beside training, on a thread
// of its own. Ranks send their records along a tree (comm/tree_gather.h); each sends only the norms that it
// owns. Losses are added in the order of the global microbatch number (parallel::Topology), so the report
// does not depend on how many ranks share the work. Only rank 0 has the report: no decision that the ranks
// must agree on may depend on it.
//
// At most one record is in progress. Submit for the next record blocks the host, between two runs, until the
// previous record has been sent, and on rank 0 until it has been folded and reported. A stream never waits.
// All ranks must submit the same steps.
class Reporter {
 public:
  using Report = std::function<void(const v1::StepReport&, const std::vector<NonfiniteGradient>&)>;

  // Arguments:
  // * item_elements: elements of each parameter, in the order of the table.
  // * own: indices in the table of the parameters whose norms this rank sends.
  // * sharing: which ranks have which losses and experts.
  // * report: called on rank 0 with every report, in the order of steps, on the reporter's thread. The second
  //   argument has the gradients that are not finite, in the order of the table and by rank; it is empty if
  //   norms are not requested. The call delays the next Submit, so it should return soon.
  // * failed: called once, on the reporter's thread, if a record cannot be folded, perhaps while the
  // destructor
  //   waits. No record is folded afterwards.
  // `comm` must outlive the reporter, whose thread alone uses it between Submit and the end of Flush. To
  // destroy the reporter early, abort `comm` first.
  Reporter(comm::Communicator& comm, std::vector<int64_t> item_elements, std::vector<int64_t> own,
           RankSharing sharing, Report report, std::function<void(int64_t step, std::exception_ptr)> failed);

  // Throws the error of an earlier record that failed.
  void Submit(StepRecord record);

  // Waits until everything submitted has been reported, or on ranks other than 0 sent. Throws the error of a
  // record that failed.
  void Flush() { thread_.Await(); }

 private:
  void Fold(const StepRecord& record);
  // Adds the loss of each text and of all texts, which are means over the targets that count. `of_ranks` has
  // each rank's doubles, with the losses of the texts, one text after the other, from index `at` on.
  void FoldValidation(const std::vector<TextLosses>& validation, const std::vector<const double*>& of_ranks,
                      int64_t at, v1::StepReport& report) const;
  // Called once: sets num_own_, and on rank 0 owned_.
  void ExchangeOwn();
  void FoldNorms(const std::vector<const double*>& of_ranks, v1::StepReport& report,
                 std::vector<NonfiniteGradient>& nonfinite) const;

  comm::Communicator& comm_;
  const std::vector<int64_t> item_elements_;
  const std::vector<int64_t> own_;
  const RankSharing sharing_;
  const Report report_;
  // Used by the thread.
  std::vector<int64_t> num_own_;             // by rank: number of parameters in its `own`; empty at first
  std::vector<std::vector<int64_t>> owned_;  // on rank 0, by rank: its `own`

  int64_t step_ = 0;   // of the newest record
  TaskThread thread_;  // must be last, because it uses the other members
};

}  // namespace tandem::trainer
