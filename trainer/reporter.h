// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fsdp/parameter_norms.h"
#include "trainer/router_load.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::trainer {

// One optimizer step as one rank saw it.
struct StepRecord {
  int64_t step = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  int64_t tokens = 0;                     // over all ranks
  double seconds = 0;                     // wall time of the step
  int64_t nonfinite = 0;                  // gradient elements, over all ranks
  std::vector<double> losses;             // of this rank's microbatches
  std::vector<RouterLoad> routers;        // of sparse layers, in layer order
  std::vector<double> validation_losses;  // likewise; empty where the step was not followed by a validation
  int64_t validation_batches = 0;         // global microbatches of the validation; losses beyond do not count
  std::vector<fsdp::ParameterNorms> norms;  // of this rank's pieces, in table order; empty: not wanted
};

// A parameter whose mean gradient is not finite, and a rank that holds such elements of it.
struct NonfiniteGradient {
  int64_t parameter = 0;  // in table order
  int rank = 0;
  bool operator==(const NonfiniteGradient&) const = default;
};

// One optimizer step of all ranks.
struct StepSummary {
  int64_t step = 0;
  double loss = 0;  // mean over the global microbatches; 0 in step 0, the validation before the first step
  double grad_norm = 0;
  double learning_rate = 0;
  int64_t tokens = 0;
  double seconds = 0;
  int64_t nonfinite = 0;
  std::map<std::string, double> scalars;  // "tokens_per_second", "validation_loss", "model_flops_utilization"
  // L2, in the order of the parameters' table; empty where they are not wanted.
  std::vector<double> weight;
  std::vector<double> gradient;
  std::vector<double> update;
  std::vector<double> rms;  // root mean square of the weight
  // The largest magnitudes; NaN where an element is.
  std::vector<double> weight_max;
  std::vector<double> gradient_max;
  std::vector<double> update_max;
  std::vector<ExpertLoad> experts;  // of sparse layers, in layer order
  // Where gradients are not finite, in table order and by rank; empty where norms are not wanted.
  std::vector<NonfiniteGradient> nonfinite_at;
};

// Brings what the ranks have seen of each step to rank 0 and folds it there, in the order of the global
// microbatch number (round × ranks + rank), so that the summary does not depend on how many ranks share the
// work. One thread per rank, with a communicator of its own, while the next step runs. Only rank 0 has the
// summary: nothing that the ranks must agree on may follow from it.
//
// At most one record is under way: Submit for the next one waits, on the host and between two runs, until
// the one before has been sent, on rank 0 until it has been folded and reported. A stream never waits. All
// ranks submit the same steps.
class Reporter {
 public:
  // item_elements: elements of each parameter, in table order. sharing: of experts, as the records' routers.
  // seconds_at_peak: of a step (plan/step_work.h), for the summaries' model FLOPs utilization; 0: not known.
  // tell: called on rank 0 with every summary, in step order, on the reporter's thread; what it does delays
  //   the next Submit, so it hands over and returns.
  // failed: called once, on the reporter's thread, when a record cannot be folded; nothing is folded any
  // more. `comm` outlives it; between Submit and the end of Flush this thread alone uses it.
  Reporter(comm::Communicator& comm, std::vector<int64_t> item_elements, ExpertSharing sharing,
           double seconds_at_peak, std::function<void(const StepSummary&)> tell,
           std::function<void(int64_t step, std::exception_ptr)> failed);
  ~Reporter();  // drops what is not folded yet; does not end a collective that is under way
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // Returns at once after a failure.
  void Submit(StepRecord record);

  // Waits until everything submitted has been reported; on other ranks than 0, sent. Throws what a record
  // failed with.
  void Flush();

 private:
  void Run();
  void Fold(const StepRecord& record);

  comm::Communicator& comm_;
  const std::vector<int64_t> item_elements_;
  const ExpertSharing sharing_;
  const double seconds_at_peak_;
  const std::function<void(const StepSummary&)> tell_;
  const std::function<void(int64_t, std::exception_ptr)> failed_;

  std::mutex mu_;
  std::condition_variable changed_;
  std::optional<StepRecord> waiting_;  // mu_
  bool busy_ = false;                  // mu_
  bool ending_ = false;                // mu_
  std::exception_ptr error_;           // of the record that failed; mu_
  std::thread thread_;
};

}  // namespace tandem::trainer
