// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator_factory.h"
#include "comm/communicators.h"
#include "device/device.h"
#include "device/memory.h"
#include "fsdp/unit_shard.h"
#include "link/shared_page.h"
#include "plan/job_plan.h"
#include "platform/clock.h"
#include "platform/files.h"
#include "tandem/v1/trainer.pb.h"
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
  const platform::Clock* clock = &platform::SteadyClock();  // by which waits for saves are measured
  // The code of the whole outline's nodes; empty: that of the plan's decoder. Others are for tests.
  std::function<std::vector<std::unique_ptr<model::Node>>(const ops::Operations& ops)> make_nodes;
};

// Sends a message to the worker; called on the rank's thread unless said otherwise. Every rank sends that it
// is ready; steps that were recorded; and for each request that the ranks have acted on that it is done. Rank
// 0 alone sends
// * where norms are wanted, before the first report: the table in whose order they come;
// * reports, in step order, on the reporter's thread, which must not be blocked;
// * before its report, likewise, a warning at the first step whose gradients are not finite;
// * checkpoints, and warnings of them, on the thread that saves where that is another.
// Answers to requests for a checkpoint come on that thread, too.
using SendToWorker = std::function<void(v1::FromTrainer message)>;

enum class RankOutcome : uint8_t {
  kFinished,  // every step is done
  kStopped,   // on request, after its checkpoint
};

// How a rank reaches the others. All outlive it.
struct RankCommunicators {
  // For tensors of the backend's device: those of CommunicatorUsesOf(plan), in its order.
  comm::Communicators& programs;
  // Makes memory that these can register.
  comm::CommunicatorFactory& factory;
  // For tensors of the host: reports, and checkpoints while no report is in progress.
  comm::Communicator& report;
  // Likewise for checkpoints that are written beside training; null where the job saves none.
  comm::Communicator* save = nullptr;
};

// One rank's whole life with the communicators that it is given: of threads in tests; of Gloo, and on GPUs of
// NCCL, in production.
//
// After an exception from Run the streams may still be inside a collective that cannot be ended: leave the
// process without destroying it, or (thread communicators) destroy it, which waits for them.
class Rank {
 public:
  // All arguments outlive it. Throws UserError where the data or the checkpoint does not fit the job.
  Rank(const plan::JobPlan& plan, const RankConfig& config, RankCommunicators communicators,
       platform::Files& files, RequestBox& requests, link::SharedPage& page, Backend& backend,
       SendToWorker send);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Loads, trains, validates, checkpoints, until the last step or a request to stop. Once.
  // Throws InstructionError, NumericError, UserError, CheckpointError, CommError.
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
