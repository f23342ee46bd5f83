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

// The settings of one rank that are not in the plan.
struct RankConfig {
  int rank = 0;
  int attempt = 1;
  std::string job;          // its id
  std::string spec_digest;  // digest of the resolved spec
  std::string resume_from;  // a checkpoint that the controller chose; if empty, the plan decides
  v1::Exports exports;      // of the resolved job
  std::string tandem;       // path of the program tandem, which exports
  ExecutorOptions executor;
  const platform::Clock* clock = &platform::SteadyClock();  // measures how long training waits for saves
  // For tests: makes the nodes of the whole model. If it is empty, the nodes are those of the plan's decoder.
  std::function<std::vector<std::unique_ptr<model::Node>>(const ops::Operations& ops)> make_nodes;
};

// Sends a message to the worker. It is called on the rank's thread unless said otherwise below. Every rank
// sends that it is ready, each step that is recorded for a profile, and an answer to each request when the
// ranks have acted on it. Rank 0 also sends
//   * before the first report, if norms are requested: the names of parameters, in the order of their norms;
//   * reports in the order of steps, on the reporter's thread, which must not be blocked;
//   * on that thread and before the report: a warning at the first step whose gradients are not finite;
//   * a notice of each checkpoint, and warnings about checkpoints, on the thread that saves if there is one;
//   * warnings about exports, on the thread that waits for them.
// Answers to requests for a checkpoint come from the thread that saves, too.
using SendToWorker = std::function<void(v1::FromTrainer message)>;

enum class RankOutcome : uint8_t {
  kFinished,  // every step is done
  kStopped,   // stopped by a request, after its checkpoint
};

// The communicators of a rank. All must outlive it.
struct RankCommunicators {
  // For tensors on the backend's device. They are those of CommunicatorUsesOf(plan), in its order.
  comm::Communicators& programs;
  // Allocates memory that these communicators can register.
  comm::CommunicatorFactory& factory;
  // For tensors on the host: reports, and checkpoints while no report is in progress.
  comm::Communicator& report;
  // For tensors on the host: checkpoints that are written while training goes on. Null if the job saves none.
  comm::Communicator* save = nullptr;
};

// Runs one rank of a job from start to end. In production its communicators are of Gloo and NCCL; in tests
// they connect threads of one process.
//
// After Run has thrown, the streams may still be inside a collective that cannot be aborted, so the process
// must exit without destroying the rank. In tests collectives can be aborted, so the rank must be destroyed;
// its destructor waits for the streams.
class Rank {
 public:
  // All arguments must outlive it. Throws UserError if the data or the checkpoint does not fit the job.
  Rank(const plan::JobPlan& plan, const RankConfig& config, RankCommunicators communicators,
       platform::Files& files, RequestBox& requests, link::SharedPage& page, Backend& backend,
       SendToWorker send);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Loads, trains, validates and saves until the last step or a request to stop. May be called once. Throws
  // InstructionError, NumericError, UserError, CheckpointError, CommError.
  RankOutcome Run();

  // Makes Run throw, because a collective in flight will not end, as `error` says. Returns what Run throws:
  // `error` with the instruction that hangs, if it is known. Any thread may call it.
  std::exception_ptr FailHungCollective(const std::exception_ptr& error);

  // Releases the checkpoint directory, so that the next job need not wait for it. Run calls it when it
  // returns; a thread that ends the process otherwise must call it last. It waits for the disk, which may
  // hang. Any thread may call it.
  void ReleaseDirectory();

  // The last completed step, for the message Finished.
  int64_t step() const;

  // For tests. Must be called while no run is in flight.
  const std::vector<fsdp::UnitShard>& units() const;
  fsdp::StateMemory StateOf(size_t unit) const;
  device::Memory arena() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::trainer
