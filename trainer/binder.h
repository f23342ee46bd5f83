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

// Turns instructions into calls that work on the memory of their operands. Only this class knows which code
// runs an opcode.
class Binder {
 public:
  // If `fill_with_nan` (for tests), a call first fills the operands that its instruction overwrites with NaN.
  // `await_batch` blocks until the host has the tokens of a microbatch of the run of that parity. All
  // arguments must outlive the binder and the calls that it returns.
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
  // By parity and microbatch: the number of targets in the newest batch that do not count in the loss.
  // Written when the batch is loaded, and read by the norm of the same run.
  const std::unique_ptr<std::array<std::vector<int64_t>, 2>> uncounted_;
};

}  // namespace tandem::trainer
