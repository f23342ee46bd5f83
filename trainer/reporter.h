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

// How much a validation takes of one text: the number of global microbatches, beyond which losses do not
// count, and the divisor of the sum of their losses: the number of targets that count, in units of a full
// microbatch.
struct ValidationExtent {
  std::string name;  // name of the text in the scalar validation_loss/NAME; empty if it has none
  int64_t batches = 0;
  double divisor = 0;
};

// A rank's share of a text's validation: the losses of its microbatches.
struct TextLosses {
  ValidationExtent extent;
  std::vector<double> losses;
};

// What one rank knows of one optimizer step, or of the validation before the first.
struct StepRecord {
  // The part that all ranks know alike: the step, the norm of its gradients and the number of elements that
  // are not finite, the learning rate, tokens and wall time. Rank 0 adds what it folds from the rest.
  v1::StepReport report;
  std::vector<double> losses;                     // one for each of this rank's microbatches
  std::vector<std::vector<double>> depth_losses;  // the same for each depth (model/depths.h)
  double divisor = 1;                  // divisor of the sum of all ranks' losses (fsdp::NormOutcome)
  std::vector<RouterLoad> routers;     // one for each sparse layer, in layer order
  std::vector<TextLosses> validation;  // by text; empty if no validation followed the step
  // Norms of what this rank owns, in the order that the reporter was given. Unset on all ranks if norms are
  // not requested.
  std::optional<std::vector<fsdp::ParameterNorms>> norms;
};

// A parameter whose mean gradient is not finite, and a rank that holds elements of it which are not.
struct NonfiniteGradient {
  int64_t parameter = 0;  // index in the table
  int rank = 0;
  bool operator==(const NonfiniteGradient&) const = default;
};

// Brings what the ranks have seen of each step to rank 0, along a tree (comm/tree_gather.h) to which each
// rank adds the norms of what it owns and no more, and folds it there, in the order of the global microbatch
// number (parallel::Topology), so that the report does not depend on how many ranks share the work. One
// thread per rank, with a communicator of its own, while the next step runs. Only rank 0 has the report:
// nothing that the ranks must agree on may follow from it.
//
// At most one record is in progress. Submit for the next one waits, on the host and between two runs, until
// the previous one has been sent, and on rank 0 until it has been folded and reported. A stream never waits.
// All ranks submit the same steps.
class Reporter {
 public:
  using Report = std::function<void(const v1::StepReport&, const std::vector<NonfiniteGradient>&)>;

  // Arguments:
  // * item_elements: elements of each parameter, in the order of the table.
  // * own: indices in the table of the parameters whose norms this rank sends; it sends no others.
  // * sharing: which ranks have which losses and experts.
  // * seconds_at_peak: time of a step at peak speed (plan/prediction.h), for the model FLOPs utilization in
  //   reports; 0: unknown.
  // * report: called on rank 0 with every report, in the order of steps, on the reporter's thread, together
  //   with the places where its gradients are not finite, in the order of the table and by rank (none if
  //   norms are not requested). It delays the next Submit, so it should hand over and return.
  // * failed: called once, on the reporter's thread, if a record cannot be folded; nothing is folded after
  //   that.
  // `comm` outlives the reporter. Between Submit and the end of Flush only the reporter's thread uses it.
  Reporter(comm::Communicator& comm, std::vector<int64_t> item_elements, std::vector<int64_t> own,
           RankSharing sharing, double seconds_at_peak, Report report,
           std::function<void(int64_t step, std::exception_ptr)> failed);
  // Drops what has not been folded. It does not end a collective that is in progress.
  ~Reporter() ABSL_LOCKS_EXCLUDED(mu_);
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // After a failure it returns at once.
  void Submit(StepRecord record) ABSL_LOCKS_EXCLUDED(mu_);

  // Waits until everything submitted has been reported, or on ranks other than 0 sent. Throws the error of a
  // record that failed.
  void Flush() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void AwaitIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // until nothing is in progress or a record has failed
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
