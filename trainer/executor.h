// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicators.h"
#include "link/shared_page.h"
#include "schedules/program/program.h"
#include "tandem/v1/report.pb.h"
#include "trainer/batch_reader.h"
#include "trainer/run_memory.h"

namespace tandem::fsdp {
class UnitShard;
}
namespace tandem::model {
class Node;
}
namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

class Backend;
class StageMemory;

struct ExecutorOptions {
  // NaN into local memory at the start, and into whatever an instruction overwrites, before it does (tests).
  bool fill_with_nan = false;
  // A piece of stream work for each instruction, not one for all up to the next wait: for streams that choose
  // which piece is next (tests). Hand-overs between threads cost time.
  bool separate_instructions = false;
};

// Runs the programs of one rank: wait, call, record. It adds no wait but the join between runs and guesses no
// lifetime: all others are in the program. One host thread calls it; the instructions run on the rank's
// streams, which live as long as the executor.
//
// Two runs may be in flight: the host issues one while the one before it runs, and blocks on the end of that
// before it issues a third. A run's instructions were bound to tensors at fixed addresses once, for each of
// the two elements of the rings.
//
// The first error ends everything: what is queued is skipped, the communicators are aborted, and Await throws
// that error. The executor is then good for nothing but destruction, which waits for the streams;
// with Gloo, where a pending operation cannot be ended, leave the process instead.
class Executor {
 public:
  // All arguments outlive it. communicators: those of CommunicatorUsesOf(plan), in its order. `page` gets
  // the step in progress, the instruction that finished last (its place among those of plan.stage.All(), one
  // program behind the other), and the collectives that each communicator has started. On CUDA it is the last
  // of a segment that another stream waits for, and known 10 ms late at most (progress.h). Copies to and from
  // the host, which go ahead into the next run, change the page's time alone, on CUDA nothing.
  Executor(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
           const std::vector<fsdp::UnitShard>& units, const StageMemory& memory,
           comm::Communicators& communicators, link::SharedPage& page, Backend& backend,
           const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Issues a run. load: of its microbatches, called on a thread of the executor's. step: of a validation, the
  // step whose weights it uses. Requires in_flight() < 2, and a plan that has the run's program. Throws what
  // Await would where an error is known already.
  void Issue(const RunRequest& request, BatchReader::Load load, int64_t step = 0);

  // Blocks until the oldest run in flight has ended. Requires in_flight() > 0. Throws the first error of any
  // run: an InstructionError, or what Fail was given. Where a GPU failed without a call that threw, the
  // error's step and text say behind which instruction.
  RunRecord Await();

  // The times of the run that Await returned last, where it was recorded; without its rank.
  std::optional<v1::StepTimeline> TakeRecorded();

  int in_flight() const;

  // Ends the runs in flight, or the next one, with `error`, as if an instruction had thrown it. Any thread.
  void Fail(std::exception_ptr error);

  // The same for a collective that will not end: `error` says why and names what noticed it, a heartbeat or a
  // group whose deadline has passed. It is reported with the instruction and the group of the oldest
  // collective that has not ended, which may be another group's. Returns that. Any thread.
  std::exception_ptr FailHungCollective(const std::exception_ptr& error);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::trainer
