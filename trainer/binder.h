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

// Turns instructions into calls on the memory of their operands: the one place that knows which code runs an
// opcode.
class Binder {
 public:
  // fill_with_nan: a call first fills what its instruction overwrites with NaN (tests).
  // await_batch: blocks until the host has the tokens of a microbatch of the run of that parity. All outlive
  // it and what it binds.
  Binder(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
         const std::vector<fsdp::UnitShard>& units, const StageMemory& memory, Backend& backend,
         bool fill_with_nan, std::function<void(int parity, int microbatch)> await_batch);

  // The call of an instruction of `program` in runs of that parity. communicator: the instruction's, or null.
  // Throws std::invalid_argument where sizes do not fit.
  Call Bind(const schedules::Program& program, const schedules::Instruction& instruction, int parity,
            comm::Communicator* communicator) const;

 private:
  fsdp::GradientNormConfig NormConfig(int parity, int microbatches) const;
  Call BindOpcode(const schedules::Program& program, const schedules::Instruction& instruction, int parity,
                  comm::Communicator* communicator) const;
  // What the node declares of the pass, in its order.
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
  // By parity and microbatch: targets of the newest batch that do not count. A run's batches are loaded
  // before its norm, and another run of that parity begins after it has ended.
  const std::unique_ptr<std::array<std::vector<int64_t>, 2>> uncounted_;
};

}  // namespace tandem::trainer
