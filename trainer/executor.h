#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "link/shared_page.h"
#include "schedules_v1/program.h"
#include "trainer/gradient_norm.h"
#include "trainer/profiling.h"
#include "trainer/requests.h"

namespace tandem::comm {
class Communicator;
}
namespace tandem::model {
class Node;
}
namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

class Backend;
class RankMemory;

// A communicator and the index of its group among the rank's groups, in creation order.
struct GroupCommunicator {
  comm::Communicator* communicator = nullptr;
  int group = -1;
};

// By schedules_v1::Communicator; each is used from one stream only, the one that the programs say.
struct ExecutorCommunicators {
  GroupCommunicator gather;
  GroupCommunicator reduce;
  GroupCommunicator norm;
};

struct ExecutorOptions {
  // Fills what was released with NaN, on the stream that releases it (tests).
  bool poison = false;
  // A piece of stream work for each instruction, not one for all up to the next wait: for streams that choose
  // which piece is next (tests). Hand-overs between threads cost time.
  bool separate_instructions = false;
};

// What changes from one run of a program to the next.
struct RunInputs {
  int64_t step = 0;  // from 1
  double learning_rate = 0;
  // Writes the tokens [B, S + 1] of one of this rank's microbatches. Called on the stream of LoadBatch.
  std::function<void(int microbatch, int64_t* tokens)> load;
  Recording recording = Recording::kNone;
};

struct RunResult {
  std::vector<double> losses;           // of this rank's microbatches
  NormResult norm;                      // of programs with a GradientNorm
  std::optional<RecordedRun> recorded;  // where it was wanted; without its rank
};

// Runs the programs of one rank: wait, set stream, call, record. It adds no wait and guesses no lifetime:
// both are in the program. One host thread calls it; the instructions run on the rank's streams, which live
// as long as the executor. On CUDA that thread issues the whole program without waiting for the GPU, and then
// waits for the streams.
//
// The first error poisons: what is queued is skipped, the communicators are aborted, and the run throws one
// InstructionError. The executor is then good for nothing but destruction, which waits for the streams; with
// Gloo, where a pending operation cannot be ended, leave the process instead.
class Executor {
 public:
  // All arguments outlive it. `page` gets instruction, microbatch, time and collectives as they start.
  Executor(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
           RankMemory& memory, const ExecutorCommunicators& communicators, RequestBox& requests,
           link::SharedPage& page, Backend& backend, const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Each returns when every stream is idle again. Validate needs a plan that validates.
  RunResult Train(const RunInputs& inputs);
  RunResult Validate(const RunInputs& inputs);

  // Ends the run in progress, or the next one, with `error`, as if an instruction had thrown it. Any thread.
  void Fail(std::exception_ptr error);

  // The same for a collective that will not end: `error` says why, and the oldest one that has not ended is
  // the instruction that it is told with. Returns that. Any thread.
  std::exception_ptr Lose(const std::exception_ptr& error);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::trainer
