// SPDX-License-Identifier: Apache-2.0
#include "trainer/binder.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/device.h"
#include "fsdp/gradient_norm.h"
#include "model/node.h"
#include "ops/operations.h"
#include "ops/sparse_operations.h"
#include "plan/job_plan.h"
#include "schedules/program/pass_operand.h"
#include "schedules/program/text.h"
#include "trainer/backend.h"
#include "trainer/stage_memory.h"
#include "trainer/state_update.h"

namespace tandem::trainer {

using device::Memory;
using schedules::Buffer;
using schedules::BufferKind;
using schedules::Instruction;
using schedules::Mode;
using schedules::Opcode;
using schedules::Operand;
using schedules::Program;

namespace {

// The operands of one instruction in runs of one parity, taken in their order (schedules/program/program.h).
class OperandReader {
 public:
  OperandReader(const Program& program, const Instruction& instruction, int parity, const StageMemory& memory)
      : program_(program), instruction_(instruction), parity_(parity), memory_(memory) {}

  bool at_end() const { return next_ == instruction_.operands.size(); }
  const Operand& operand() const { return instruction_.operands.at(next_); }
  const Buffer& buffer() const { return program_.buffers.at(operand().buffer); }

  // The next operand, whatever it is.
  Memory Take() {
    const Memory memory = memory_.At(program_, operand(), parity_);
    ++next_;
    return memory;
  }

  // The next operand, which must be of that kind.
  Memory Take(BufferKind kind) {
    if (at_end() || buffer().kind != kind) {
      throw std::logic_error(absl::StrCat("operand ", next_, " is not the ", schedules::ToText(kind)));
    }
    return Take();
  }

  // The next operand if it is of that kind; otherwise no memory.
  Memory TakeIf(BufferKind kind) { return !at_end() && buffer().kind == kind ? Take() : Memory{}; }

 private:
  const Program& program_;
  const Instruction& instruction_;
  const int parity_;
  const StageMemory& memory_;
  size_t next_ = 0;
};

// Whether the parameters of the node that counts in that state are frozen.
bool IsFrozen(const schedules::Outline& outline, const Buffer& counter) {
  for (const schedules::Node& node : outline.nodes) {
    const std::vector<schedules::StateId>& counts = node.forward.state_adds;
    if (std::find(counts.begin(), counts.end(), counter.subject) != counts.end()) {
      return outline.units.at(node.forward.parameters.at(0).unit).frozen;
    }
  }
  throw std::logic_error(absl::StrCat("no node counts in ", counter.name));
}

model::Pass PassOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kForward:
      return model::Pass::kForward;
    case Opcode::kRecompute:
      return model::Pass::kRecompute;
    case Opcode::kBackward:
      return model::Pass::kBackward;
    case Opcode::kBackwardInput:
      return model::Pass::kBackwardInput;
    case Opcode::kBackwardWeight:
      return model::Pass::kBackwardWeight;
    default:
      throw std::logic_error(absl::StrCat(schedules::ToText(opcode), " is not a pass of a node"));
  }
}

const model::UnitTypes& TypesOf(const plan::JobPlan& plan, schedules::UnitId unit) {
  return plan.precision.Of(plan.units.at(unit).name);
}

// The type of the elements of a buffer that holds parameters or their gradients; none for other kinds.
std::optional<model::ComputeType> ParameterTypeOf(const plan::JobPlan& plan, const Buffer& buffer) {
  switch (buffer.kind) {
    case BufferKind::kGathered:
    case BufferKind::kOuterGathered:
    case BufferKind::kPublished:
    case BufferKind::kWeights:  // where they are not published
      return TypesOf(plan, buffer.subject).compute;
    case BufferKind::kContribution:
      return TypesOf(plan, buffer.subject).transport;
    case BufferKind::kCollected:
      return TypesOf(plan, buffer.subject).main;
    default:
      return std::nullopt;
  }
}

// Whether buffers of that kind hold what is such an operand of a pass.
bool Holds(BufferKind kind, schedules::PassOperand::What what) {
  using What = schedules::PassOperand::What;
  switch (what) {
    case What::kGradient:
      return kind == BufferKind::kActivationGradient;
    case What::kParameterGradient:
      return kind == BufferKind::kContribution || kind == BufferKind::kCollected;
    case What::kState:
    case What::kCarriedState:
      return kind == BufferKind::kNodeState;
    default:
      return schedules::InfoOf(kind).subject == schedules::SubjectKind::kValue &&
             kind != BufferKind::kActivationGradient;
  }
}

fsdp::AdamWConfig AdamW(const plan::JobPlan& plan) {
  const plan::OptimizerConfig& config = plan.train.optimizer;
  return {.beta1 = config.beta1,
          .beta2 = config.beta2,
          .epsilon = config.epsilon,
          .weight_decay = config.weight_decay,
          .divisor = plan::MicrobatchesPerStep(plan)};
}

}  // namespace

Binder::Binder(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
               const std::vector<fsdp::UnitShard>& units, const StageMemory& memory, Backend& backend,
               bool fill_with_nan, std::function<void(int, int)> await_batch)
    : plan_(plan),
      nodes_(nodes),
      units_(units),
      memory_(memory),
      backend_(backend),
      fill_with_nan_(fill_with_nan),
      await_batch_(std::move(await_batch)) {}

Call Binder::Bind(const Program& program, const Instruction& instruction, int parity,
                  comm::Communicator* communicator) const {
  Call call = BindOpcode(program, instruction, parity, communicator);
  std::vector<Memory> overwritten;
  for (const Operand& operand : instruction.operands) {
    if (operand.mode == Mode::kWrites && !schedules::IsHost(program.buffers[operand.buffer].kind)) {
      overwritten.push_back(memory_.At(program, operand, parity));
    }
  }
  if (!fill_with_nan_ || overwritten.empty()) {
    return call;
  }
  return [&device = backend_.device(), overwritten, call] {
    for (const Memory& memory : overwritten) {
      device.Fill(memory.begin, device::kNanByte, memory.bytes);
    }
    call();
  };
}

Call Binder::BindOpcode(const Program& program, const Instruction& instruction, int parity,
                        comm::Communicator* communicator) const {
  device::Device& device = backend_.device();
  OperandReader operands(program, instruction, parity, memory_);
  switch (instruction.opcode) {
    case Opcode::kLoadInputs: {
      const Memory host = operands.Take(BufferKind::kHostInputs);
      const Memory inputs = operands.Take(BufferKind::kInputs);
      return [&device, host, inputs] { device.CopyToDevice(inputs.begin, host.begin, host.bytes); };
    }
    case Opcode::kLoadBatch: {
      const Memory host = operands.Take(BufferKind::kHostBatch);
      const Memory tokens = operands.Take(BufferKind::kBatch);
      return [this, &device, host, tokens, parity, microbatch = instruction.microbatch] {
        await_batch_(parity, microbatch);
        device.CopyToDevice(tokens.begin, host.begin, host.bytes);
      };
    }
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight: {
      std::vector<model::OperandMemory> memory;
      for (const Operand& operand : instruction.operands) {
        memory.push_back(MemoryOf(program, operand, parity));
      }
      if (instruction.opcode == Opcode::kForward || instruction.opcode == Opcode::kRecompute) {
        InsertOmitted(program, instruction, memory);
      }
      return nodes_.at(instruction.target)->Bind(PassOf(instruction.opcode), memory, communicator);
    }
    case Opcode::kUnshard: {
      const Memory shard = operands.Take();
      return units_.at(instruction.target)
          .BindUnshard(*communicator, shard, operands.Take(BufferKind::kGathered));
    }
    case Opcode::kUnshardOuter: {
      const Memory piece = operands.Take();
      return units_.at(instruction.target)
          .BindUnshardOuter(*communicator, piece, operands.Take(BufferKind::kOuterGathered));
    }
    case Opcode::kReduceGradients: {
      const bool accumulated = operands.buffer().kind == BufferKind::kFullGradient;
      const Memory contribution =
          operands.Take(accumulated ? BufferKind::kFullGradient : BufferKind::kContribution);
      const Memory staging = operands.TakeIf(BufferKind::kStaging);
      const bool adds = operands.operand().mode == Mode::kAdds;
      const Memory gradients = operands.Take(BufferKind::kGradients);
      return units_.at(instruction.target)
          .BindReduceGradients(communicator,
                               {.contribution = contribution,
                                .accumulated = accumulated,
                                .staging = staging,
                                .gradients = gradients,
                                .norm_terms = operands.TakeIf(BufferKind::kNormTerms)},
                               adds);
    }
    case Opcode::kRound: {
      const model::UnitTypes& types = TypesOf(plan_, instruction.target);
      const Memory collected = operands.Take(BufferKind::kCollected);
      return fsdp::BindRound(device, collected, model::ScalarTypeOf(types.main),
                             operands.Take(BufferKind::kContribution), model::ScalarTypeOf(types.transport));
    }
    case Opcode::kReduceOuter: {
      const Memory gradients = operands.Take(BufferKind::kGradients);
      const Memory staging = operands.Take(BufferKind::kStaging);
      return units_.at(instruction.target)
          .BindReduceOuter(*communicator, {.gradients = gradients,
                                           .staging = staging,
                                           .norm_terms = operands.Take(BufferKind::kNormTerms)});
    }
    case Opcode::kAccumulate: {
      const Memory contribution = operands.Take(BufferKind::kContribution);
      const bool adds = operands.operand().mode == Mode::kAdds;
      return units_.at(instruction.target)
          .BindAccumulate(contribution, operands.Take(BufferKind::kFullGradient), adds);
    }
    case Opcode::kZero: {
      const Memory part = operands.Take(BufferKind::kContribution);
      return [&device, part] { device.Fill(part.begin, 0, part.bytes); };
    }
    case Opcode::kGradientNorm: {
      fsdp::GradientNormMemory memory;
      while (operands.buffer().kind == BufferKind::kNormTerms) {
        memory.norm_terms.push_back(operands.Take());
      }
      memory.inputs = operands.Take(BufferKind::kInputs);
      memory.outcome = operands.Take(BufferKind::kOutcome);
      return fsdp::BindGradientNorm(*communicator, memory,
                                    {.num_microbatches = plan::MicrobatchesPerStep(plan_),
                                     .max_norm = plan_.train.optimizer.clip_grad_norm},
                                    device, backend_.shard_kernels());
    }
    case Opcode::kOptimizerStep: {
      fsdp::OptimizerMemory memory;
      memory.gradients = operands.Take(BufferKind::kGradients);
      memory.outcome = operands.Take(BufferKind::kOutcome);
      memory.inputs = operands.Take(BufferKind::kInputs);
      memory.state.weights = operands.Take(BufferKind::kWeights);
      const Buffer& moments = operands.buffer();
      const Memory both = operands.Take(BufferKind::kOptimizerState);
      memory.state.exp_avg = {both.begin + moments.parts.at(0).begin,
                              moments.parts[0].end - moments.parts[0].begin};
      memory.state.exp_avg_sq = {both.begin + moments.parts.at(1).begin,
                                 moments.parts[1].end - moments.parts[1].begin};
      memory.state.published = operands.TakeIf(BufferKind::kPublished);
      memory.update_norms = operands.TakeIf(BufferKind::kUpdateNorms);
      memory.scratch = operands.TakeIf(BufferKind::kScratch);
      return units_.at(instruction.target).BindOptimizerStep(memory, AdamW(plan_));
    }
    case Opcode::kUpdateStates: {
      BiasesMemory memory{.outcome = operands.Take(BufferKind::kOutcome),
                          .type = model::MainType(plan_.precision.common.compute)};
      while (operands.buffer().kind == BufferKind::kNodeState) {
        const bool frozen = IsFrozen(plan_.outline, operands.buffer());
        const Memory tokens = operands.Take();
        memory.routers.push_back(
            {.tokens = tokens, .bias = operands.Take(BufferKind::kNodeState), .frozen = frozen});
      }
      memory.exchanged = operands.Take(BufferKind::kScratch);
      return BindBiasUpdates(*communicator, memory, plan_.model.moe.router_bias_update_rate,
                             backend_.operations().sparse(), device);
    }
    case Opcode::kReport: {
      std::vector<Memory> reads;
      std::vector<Memory> writes;
      while (!operands.at_end()) {
        const bool reads_it = operands.operand().mode == Mode::kReads;
        (reads_it ? reads : writes).push_back(operands.Take());
      }
      if (reads.size() != writes.size()) {
        throw std::logic_error("a report copies every buffer that it reads to one that it writes");
      }
      return [&device, reads, writes] {
        for (size_t i = 0; i < reads.size(); ++i) {
          device.CopyToHost(writes[i].begin, reads[i].begin, reads[i].bytes);
        }
      };
    }
    case Opcode::kFill: {
      std::vector<Memory> dead;
      while (!operands.at_end()) {
        dead.push_back(operands.Take());
      }
      return [&device, dead] {
        for (const Memory& memory : dead) {
          device.Fill(memory.begin, device::kNanByte, memory.bytes);
        }
      };
    }
    case Opcode::kHostWait:
      return [] {};  // the issuing thread waits (Executor)
    case Opcode::kSend:
    case Opcode::kReceive:
      break;
  }
  throw std::logic_error(
      absl::StrCat("no trainer runs this yet: ", schedules::ToText(instruction, plan_.outline)));
}

// A recompute has no operand for a value that was kept, nor it or a validation for a gradient or state that
// the forward writes in training; their node's code has one for each.
void Binder::InsertOmitted(const Program& program, const Instruction& instruction,
                           std::vector<model::OperandMemory>& memory) const {
  using schedules::PassOperand;
  std::vector<PassOperand> in_training;
  schedules::ListOperands(plan_.outline.nodes.at(instruction.target), Opcode::kForward, {}, /*trains=*/true,
                          in_training);
  for (size_t i = 0; i < in_training.size(); ++i) {
    const PassOperand& expected = in_training[i];
    if (expected.mode == Mode::kReads || expected.what == PassOperand::What::kScratch) {
      continue;
    }
    const size_t next = i - (memory.size() - instruction.operands.size());  // operand
    bool is_there = false;
    if (next < instruction.operands.size()) {
      const Operand& operand = instruction.operands[next];
      const Buffer& buffer = program.buffers[operand.buffer];
      is_there = operand.mode != Mode::kReads && buffer.subject == expected.id &&
                 Holds(buffer.kind, expected.what) &&
                 (expected.what != PassOperand::What::kParameterGradient || operand.part == expected.part);
    }
    if (!is_there) {
      memory.insert(memory.begin() + static_cast<std::ptrdiff_t>(i), model::OperandMemory{});
    }
  }
}

model::OperandMemory Binder::MemoryOf(const Program& program, const Operand& operand, int parity) const {
  const Memory memory = memory_.At(program, operand, parity);
  model::OperandMemory result{
      .begin = memory.begin, .bytes = memory.bytes, .adds = operand.mode == Mode::kAdds};
  const Buffer& buffer = program.buffers[operand.buffer];
  const std::optional<model::ComputeType> type = ParameterTypeOf(plan_, buffer);
  if (!type.has_value()) {
    return result;
  }
  result.type = *type;
  const Memory whole = memory_.At(program, {.buffer = operand.buffer}, parity);
  const int64_t element_bytes = model::ElementBytes(*type);
  const auto& parameters = plan_.units[buffer.subject].parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (operand.part < 0 || parameters[i].part == operand.part) {
      result.parameters.push_back(whole.begin +
                                  plan_.layouts[buffer.subject].parameters[i].range.begin * element_bytes);
    }
  }
  return result;
}

}  // namespace tandem::trainer
