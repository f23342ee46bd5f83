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

// What the host says of one run, before it is issued.
struct RunRequest {
  Run run;
  int64_t update = 0;        // Adam's t of run.applied
  double learning_rate = 0;  // likewise
  uint32_t requests = 0;     // of this rank, agreed on with the norm (RequestBit)
  ProfileSteps profile;      // likewise
  double norm_limit = 0;     // likewise (fsdp::NormRequests)
  bool after_wait = false;   // the host waited before it: time in which the device had no work is no run's
};

// What the host knows of one run when it has ended.
struct RunRecord {
  Run run;
  // Of the device, to the end of the run: from that of the run before it, or from its own issue if nothing
  // was in flight then, or all of that had ended while the host waited. The executor knows it.
  double seconds = 0;
  double learning_rate = 0;    // of run.applied
  std::vector<double> losses;  // of this rank's microbatches; empty where the program has none
  std::vector<std::vector<double>> depth_losses;  // likewise, of each depth (model/depths.h)
  std::vector<RouterLoad> routers;                // likewise, of sparse layers in their order
  fsdp::NormOutcome outcome;                      // of the gradients of run.computed
  std::vector<fsdp::ParameterNorms> norms;  // of this rank's pieces after run.applied, in the layouts' order
};

// The host's side of the rings: the pinned memory that copies between host and device go from and to. The
// element of a run belongs to the host before the run is issued and after it has ended. Immutable.
class RunMemory {
 public:
  // Both outlive it.
  RunMemory(const plan::JobPlan& plan, const StageMemory& memory);

  void WriteInputs(const RunRequest& request, const schedules::Program& program, int parity) const;

  // Where the tokens of each microbatch of a program go; empty where it has none.
  const std::vector<int64_t*>& Batches(const schedules::Program& program, int parity) const;

  RunRecord Read(const RunRequest& request, const schedules::Program& program, int parity) const;

 private:
  // Of a job of several stages: zeros of what other stages have, so that all ranks have records of one shape.
  void AddOtherStages(int microbatches, RunRecord& record) const;

  // Reports of one route node.
  struct Router {
    int layer = 0;
    std::vector<const double*> reports;  // by microbatch
    std::vector<const double*> losses;   // likewise, of its balance node; empty: it has none
  };

  // What a program touches of it; null where it touches none.
  struct Element {
    device::Memory inputs;
    std::vector<int64_t*> batches;                         // by microbatch
    std::vector<const double*> losses;                     // by microbatch
    std::vector<std::vector<const double*>> depth_losses;  // likewise, by depth
    std::vector<Router> routers;                           // in layer order
    device::Memory outcome;
    std::vector<std::pair<const fsdp::ParameterNorms*, size_t>>
        norms;  // by unit, with the number of parameters
  };
  struct ProgramMemory {
    std::array<Element, 2> elements;  // by parity
  };

  const plan::JobPlan& plan_;
  std::map<const schedules::Program*, ProgramMemory> programs_;
};

}  // namespace tandem::trainer
