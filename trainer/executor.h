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
  // For tests: fills the arena with NaN at the start, and before each instruction the operands that it
  // overwrites.
  bool fill_with_nan = false;
  // For tests with streams that choose which piece of work runs next: enqueues each instruction separately
  // instead of whole segments (except segments that a graph replays). Slower, because threads switch more
  // often.
  bool separate_instructions = false;
};

// Runs the programs of one rank: waits, calls and records events. All waits and lifetimes are in the program;
// the executor adds only the join between runs. One host thread calls it; the instructions run on the rank's
// streams, which live as long as the executor.
//
// Two runs may be in flight: the host issues a run while the previous run executes, and waits for the end of
// the older run before it issues a third. Instructions are bound to tensors at fixed addresses once, for
// each of the two elements of the rings. Segments of the programs are replayed as graphs (segment_graph.h),
// except in runs that are recorded, which time every instruction.
//
// The first error ends everything: queued work is skipped, the communicators are aborted, and Await throws
// that error. After that the executor can only be destroyed, which waits for the streams. Gloo cannot cancel
// a pending operation; with it, exit the process instead.
class Executor {
 public:
  // All arguments must outlive the executor. `communicators` are those of CommunicatorUsesOf(plan), in its
  // order. The executor writes to `page` the step in progress, the instruction that finished last (its index
  // in the concatenated programs of plan.stage.All()), and how many collectives each communicator has
  // started. On CUDA, only instructions that another stream waits for are noted, at most 10 ms late
  // (progress.h). Copies between host and device, which overlap the next run, only set the time of the last
  // progress; on CUDA they set nothing.
  Executor(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
           const std::vector<fsdp::UnitShard>& units, const StageMemory& memory,
           comm::Communicators& communicators, link::SharedPage& page, Backend& backend,
           const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Issues a run. `load` reads its microbatches and is called on a thread of the executor. For a validation,
  // `step` is the step whose weights it uses. Requires in_flight() < 2 and a plan with the run's program.
  // Throws as Await if an error is already known.
  void Issue(const RunRequest& request, BatchReader::Load load, int64_t step = 0);

  // Blocks until the oldest run in flight has ended. Requires in_flight() > 0. Throws the first error of any
  // run: an InstructionError, or the error given to Fail. If a GPU failed and no call threw, the error names
  // the step and the last instruction that had finished.
  RunRecord Await();

  // Returns the times of the run that Await returned last, without `rank`, if that run was recorded.
  std::optional<v1::StepTimeline> TakeRecorded();

  int in_flight() const;

  // Ends the runs in flight, or the next run, with `error`, as if an instruction had thrown it. Any thread
  // may call it.
  void Fail(std::exception_ptr error);

  // Does what Fail does, for a hung collective. `error` names the heartbeat or the group whose deadline has
  // passed. Returns the error that Await will throw: `error` with the instruction and group of the oldest
  // collective that has not ended, which may be another group. Any thread may call it.
  std::exception_ptr FailHungCollective(const std::exception_ptr& error);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::trainer
