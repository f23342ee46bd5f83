// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/communicator_factory.h"
#include "comm/communicators.h"
#include "device/device.h"
#include "device/memory.h"
#include "fsdp/unit_shard.h"
#include "link/shared_page.h"
#include "plan/job_plan.h"
#include "platform/files.h"
#include "tandem/v1/report.pb.h"
#include "tandem/v1/state.pb.h"
#include "trainer/executor.h"
#include "trainer/requests.h"

namespace tandem::model {
class Node;
}
namespace tandem::ops {
class Operations;
}

namespace tandem::trainer {

class Backend;

// Settings of one rank beside the plan.
struct RankConfig {
  int rank = 0;
  int attempt = 1;
  std::string job;          // id
  std::string spec_digest;  // of the resolved spec
  std::string resume_from;  // a checkpoint that the controller chose; empty: what the plan says
  ExecutorOptions executor;
  // The code of the outline's nodes; empty: that of the plan's decoder. Others are for tests.
  std::function<std::vector<std::unique_ptr<model::Node>>(const ops::Operations& ops)> make_nodes;
};

// What ranks compare before they start.
struct RankReady {
  std::string program_digest;
  std::string layout_digest;
  std::string data_digest;
  std::string kernels_digest;  // ops::Operations::kernels_digest
  int64_t resumed_step = 0;
  std::string resumed_from;                  // path of the checkpoint; empty: step 0
  int64_t arena_bytes = 0;                   // of its device, which it holds to its end
  device::MemoryUse memory;                  // of its device, when it was ready
  std::map<std::string, double> sent_bytes;  // plan::SentBytes
};

// Receives what happens in a rank. Called on the rank's thread unless said otherwise.
class RankObserver {
 public:
  virtual ~RankObserver() = default;

  virtual void OnReady(const RankReady& ready) = 0;
  // Rank 0 only, once, before the first report, where norms are wanted: the table in whose order they come.
  virtual void OnParameters(const std::vector<plan::TrainedParameter>& parameters) = 0;
  // Rank 0 only, in step order, on the reporter's thread; must not block.
  virtual void OnReport(const v1::StepReport& report) = 0;
  // Rank 0 only.
  virtual void OnCheckpoint(int64_t step, const checkpoint::Saved& saved) = 0;
  // Rank 0 only.
  virtual void OnCheckpointWarning(const v1::CheckpointWarning& warning) = 0;
  // Rank 0 only, once, on the reporter's thread before OnReport: the first step whose gradients are not
  // finite. message: one line, which names parameters and ranks where norms are wanted.
  virtual void OnNonfinite(int64_t step, const std::string& message) = 0;
  // A step was recorded for the profile of that id; last: it has no further steps.
  virtual void OnProfiledStep(uint64_t id, const RecordedRun& recorded, bool last) = 0;
  // The ranks have acted on these requests; `error` says why they could not do what was asked.
  virtual void OnRequestsDone(const std::vector<uint64_t>& ids, const std::string& error) = 0;
};

enum class RankOutcome : uint8_t {
  kFinished,  // every step is done
  kStopped,   // on request, after its checkpoint
};

// What the programs of a plan communicate with, as communicators are made of it; in the order of
// plan::CommunicatorUses.
std::vector<comm::CommunicatorUse> CommunicatorUsesOf(const plan::JobPlan& plan);

// How a rank reaches the others. All outlive it.
struct RankCommunicators {
  // For tensors of the backend's device: those of CommunicatorUsesOf(plan), in its order.
  comm::Communicators& programs;
  // Makes memory that these can register.
  comm::CommunicatorFactory& factory;
  // For tensors of the host: reports, and checkpoints while no report is in progress.
  comm::Communicator& report;
};

// One rank's whole life with the communicators that it is given: threads in tests, Gloo in production.
//
// After an exception from Run the streams may still be inside a collective that cannot be ended: leave the
// process without destroying it, or (thread communicators) destroy it, which waits for them.
class Rank {
 public:
  // All arguments outlive it. Throws UserError where the data or the checkpoint does not fit the job.
  Rank(const plan::JobPlan& plan, const RankConfig& config, RankCommunicators communicators,
       platform::Files& files, RequestBox& requests, link::SharedPage& page, Backend& backend,
       RankObserver& observer);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Loads, trains, validates, checkpoints, until the last step or a request to stop. Once.
  // Throws InstructionError, UserError, CheckpointError, CommError.
  RankOutcome Run();

  // For a watchdog: a collective of the runs in flight will not end. Returns what Run throws. Any thread.
  std::exception_ptr FailHungCollective(const std::exception_ptr& error);

  // Gives the checkpoint directory back, so that the next job need not wait. Run does it when it returns;
  // a thread that ends the process otherwise does it last. Waits for the disk, which may hang. Any thread.
  void ReleaseDirectory();

  // The step that is done. For Finished.
  int64_t step() const;

  // For tests, when nothing is in flight.
  const std::vector<fsdp::UnitShard>& units() const;
  fsdp::StateMemory StateOf(size_t unit) const;
  device::Memory arena() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::trainer
