// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "fsdp/gradient_norm.h"
#include "fsdp/unit_shard.h"
#include "model/node.h"
#include "schedules/program/program.h"
#include "trainer/bound_program.h"

namespace tandem::plan {
struct JobPlan;
}

namespace tandem::trainer {

class Backend;
class StageMemory;

// Turns instructions into calls on the memory of their operands. No other class knows which code runs an
// opcode.
class Binder {
 public:
  // `fill_with_nan`, for tests: a call first fills what its instruction overwrites with NaN. `await_batch`
  // blocks until the host has the tokens of a microbatch of the run of that parity. All arguments outlive the
  // binder and what it binds.
  Binder(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
         const std::vector<fsdp::UnitShard>& units, const StageMemory& memory, Backend& backend,
         bool fill_with_nan, std::function<void(int parity, int microbatch)> await_batch);

  // Returns the call of an instruction of `program` in runs of that parity. `communicator` is the
  // instruction's, or null. Throws std::invalid_argument if sizes do not fit.
  Call Bind(const schedules::Program& program, const schedules::Instruction& instruction, int parity,
            comm::Communicator* communicator) const;

 private:
  fsdp::GradientNormConfig NormConfig(int parity, int microbatches) const;
  Call BindOpcode(const schedules::Program& program, const schedules::Instruction& instruction, int parity,
                  comm::Communicator* communicator) const;
  // The memory of the operands that the node declares for the pass, in the declared order.
  std::vector<model::OperandMemory> PassMemory(const schedules::Program& program,
                                               const schedules::Instruction& instruction, int parity) const;
  model::OperandMemory MemoryOf(const schedules::Program& program, const schedules::Operand& operand,
                                int parity) const;

  const plan::JobPlan& plan_;
  const std::vector<std::unique_ptr<model::Node>>& nodes_;
  const std::vector<fsdp::UnitShard>& units_;
  const StageMemory& memory_;
  Backend& backend_;
  const bool fill_with_nan_;
  const std::function<void(int, int)> await_batch_;
  // By parity and microbatch: how many targets of the newest batch do not count. The batches of a run are
  // loaded before its norm, and the next run of the same parity begins after it has ended.
  const std::unique_ptr<std::array<std::vector<int64_t>, 2>> uncounted_;
};

}  // namespace tandem::trainer
