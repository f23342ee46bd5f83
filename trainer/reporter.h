// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fsdp/parameter_norms.h"
#include "tandem/v1/report.pb.h"
#include "trainer/router_load.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

// What a validation takes of one text: global microbatches, beyond which losses do not count, and what the
// sum of their losses is divided by: the targets that count, in microbatches that are full of them.
struct ValidationExtent {
  std::string name;  // of the text, in the scalar validation_loss/NAME; empty: it has none
  int64_t batches = 0;
  double divisor = 0;
};

// What a rank has of it: the losses of its microbatches.
struct TextLosses {
  ValidationExtent extent;
  std::vector<double> losses;
};

// One optimizer step, or the validation before the first, as one rank saw it.
struct StepRecord {
  // What all ranks know alike: the step, its gradients' norm and how many elements are not finite, learning
  // rate, tokens and wall time. Rank 0 adds what it folds of the rest.
  v1::StepReport report;
  std::vector<double> losses;                     // of this rank's microbatches
  std::vector<std::vector<double>> depth_losses;  // likewise, of each depth (model/depths.h)
  double divisor = 1;                             // of the sum of all ranks' losses (fsdp::NormOutcome)
  std::vector<RouterLoad> routers;                // of sparse layers, in layer order
  std::vector<TextLosses> validation;  // by text; empty where the step was not followed by a validation
  // Of what this rank owns, in the order that the reporter was given; none on any rank: not wanted.
  std::optional<std::vector<fsdp::ParameterNorms>> norms;
};

// A parameter whose mean gradient is not finite, and a rank that holds such elements of it.
struct NonfiniteGradient {
  int64_t parameter = 0;  // in table order
  int rank = 0;
  bool operator==(const NonfiniteGradient&) const = default;
};

// Brings what the ranks have seen of each step to rank 0, along a tree (comm/tree_gather.h) to which each
// rank adds the norms of what it owns and no more, and folds it there, in the order of the global microbatch
// number (parallel::Topology), so that the report does not depend on how many ranks share the work. One
// thread per rank, with a communicator of its own, while the next step runs. Only rank 0 has the report:
// nothing that the ranks must agree on may follow from it.
//
// At most one record is in progress: Submit for the next one waits, on the host and between two runs, until
// the one before has been sent, on rank 0 until it has been folded and reported. A stream never waits. All
// ranks submit the same steps.
class Reporter {
 public:
  using Report = std::function<void(const v1::StepReport&, const std::vector<NonfiniteGradient>&)>;

  // item_elements: elements of each parameter, in table order. own: places in the table of what this rank's
  // norms are of; of others it sends nothing. sharing: which ranks have which losses and experts.
  // seconds_at_peak: of a step (plan/step_work.h), for the reports' model FLOPs utilization; 0: not known.
  // report: called on rank 0 with every report, in step order, on the reporter's thread, and with the places
  //   where its gradients are not finite, in table order and by rank (none where norms are not wanted). What
  //   it does delays the next Submit, so it hands over and returns.
  // failed: called once, on the reporter's thread, when a record cannot be folded; nothing is folded any
  // more. `comm` outlives it; between Submit and the end of Flush this thread alone uses it.
  Reporter(comm::Communicator& comm, std::vector<int64_t> item_elements, std::vector<int64_t> own,
           RankSharing sharing, double seconds_at_peak, Report report,
           std::function<void(int64_t step, std::exception_ptr)> failed);
  // Drops what is not folded yet; does not end a collective that is in progress.
  ~Reporter() ABSL_LOCKS_EXCLUDED(mu_);
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // Returns at once after a failure.
  void Submit(StepRecord record) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until everything submitted has been reported; on other ranks than 0, sent. Throws what a record
  // failed with.
  void Flush() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void AwaitIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // nothing is in progress, or one has failed
  void Fold(const StepRecord& record);
  // The loss of each text, and of all: the mean over the targets that count. of_ranks: each rank's doubles,
  // with the losses of the texts, one after the other, from place `at` on.
  void FoldValidation(const std::vector<TextLosses>& validation, const std::vector<const double*>& of_ranks,
                      int64_t at, v1::StepReport& report) const;
  // Once: how many parameters each rank owns, and on rank 0 which.
  void ExchangeOwn();
  void FoldNorms(const std::vector<const double*>& of_ranks, v1::StepReport& report,
                 std::vector<NonfiniteGradient>& nonfinite) const;

  comm::Communicator& comm_;
  const std::vector<int64_t> item_elements_;
  const std::vector<int64_t> own_;
  const RankSharing sharing_;
  const double seconds_at_peak_;
  const Report report_;
  const std::function<void(int64_t, std::exception_ptr)> failed_;

  // The thread's.
  std::vector<int64_t> num_own_;             // by rank; empty: not exchanged yet
  std::vector<std::vector<int64_t>> owned_;  // on rank 0: by rank, in its order

  absl::Mutex mu_;
  absl::CondVar changed_;
  std::optional<StepRecord> waiting_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::exception_ptr error_ ABSL_GUARDED_BY(mu_);  // of the record that failed
  std::thread thread_;
};

}  // namespace tandem::trainer
