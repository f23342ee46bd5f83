// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "device/memory.h"
#include "fsdp/norm_outcome.h"
#include "fsdp/parameter_norms.h"
#include "schedules/program/program.h"
#include "trainer/profiling.h"
#include "trainer/router_load.h"
#include "trainer/run_sequence.h"

namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

class StageMemory;

// What the host decides about one run before it is issued.
struct RunRequest {
  Run run;
  int64_t update = 0;        // Adam's t for run.applied
  double learning_rate = 0;  // for run.applied
  uint32_t requests = 0;     // this rank's RequestBits; the ranks agree on the union with the norm
  ProfileSteps profile;      // this rank's request; the ranks agree on one with the norm
  double norm_limit = 0;     // this rank's limit (fsdp::NormRequests); the ranks agree on one with the norm
  // Whether the host waited before this run, so that the time without work on the device counts for no run.
  bool after_wait = false;
};

// What the host knows of one run after it has ended.
struct RunRecord {
  Run run;
  // Time of the run on the device, from the end of the previous run to the end of this run. If nothing was in
  // flight, or everything ended while the host waited (RunRequest::after_wait), it begins when this run was
  // issued. Set by the executor.
  double seconds = 0;
  double learning_rate = 0;    // the rate for run.applied
  std::vector<double> losses;  // one for each of this rank's microbatches; empty if the program has no losses
  std::vector<std::vector<double>> depth_losses;  // the same for each depth (model/depths.h)
  std::vector<RouterLoad> routers;                // the same for each sparse layer, in order
  fsdp::NormOutcome outcome;                      // of the gradients of run.computed
  // Norms of this rank's parts of the parameters after run.applied, in the order of the layouts.
  std::vector<fsdp::ParameterNorms> norms;
};

// The host's side of the rings: pinned memory that runs copy from and to. The host may use the element of a
// run before the run is issued and after it has ended. Immutable.
class RunMemory {
 public:
  // Both must outlive this object.
  RunMemory(const plan::JobPlan& plan, const StageMemory& memory);

  void WriteInputs(const RunRequest& request, const schedules::Program& program, int parity) const;

  // Returns the destinations of the tokens by microbatch; empty if the program reads no tokens.
  const std::vector<int64_t*>& Batches(const schedules::Program& program, int parity) const;

  RunRecord Read(const RunRequest& request, const schedules::Program& program, int parity) const;

 private:
  // In a job of several stages, adds zeros for the losses and routers of other stages, so that the records of
  // all ranks have the same shape.
  void AddOtherStages(int microbatches, RunRecord& record) const;

  // The reports of one route node.
  struct Router {
    int layer = 0;
    std::vector<const double*> reports;  // by microbatch
    std::vector<const double*> losses;   // by microbatch, from its balance node; empty if it has none
  };

  // The parts of a ring's element that a program uses; null for other parts.
  struct Element {
    device::Memory inputs;
    std::vector<int64_t*> batches;                         // by microbatch
    std::vector<const double*> losses;                     // by microbatch
    std::vector<std::vector<const double*>> depth_losses;  // by depth and microbatch
    std::vector<Router> routers;                           // in layer order
    device::Memory outcome;
    // By unit, with the number of parameters.
    std::vector<std::pair<const fsdp::ParameterNorms*, size_t>> norms;
  };
  const plan::JobPlan& plan_;
  std::map<const schedules::Program*, std::array<Element, 2>> programs_;  // by parity
};

}  // namespace tandem::trainer
