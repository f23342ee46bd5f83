// SPDX-License-Identifier: Apache-2.0
#include "trainer/binder.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/device.h"
#include "model/node.h"
#include "model/unit_parameters.h"
#include "ops/operations.h"
#include "plan/job_plan.h"
#include "plan/stages.h"
#include "schedules/program/pass_operand.h"
#include "schedules/program/signature.h"
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
using schedules::Role;

namespace {

// The operands of one instruction in runs of one parity, by their roles.
class Operands {
 public:
  Operands(const Program& program, const Instruction& instruction, int parity, const StageMemory& memory)
      : program_(program), instruction_(instruction), parity_(parity), memory_(memory) {}

  bool Has(Role role) const { return schedules::Find(instruction_, role) != nullptr; }
  const Operand& At(Role role) const {
    const Operand* const operand = schedules::Find(instruction_, role);
    if (operand == nullptr) {
      throw std::logic_error(
          absl::StrCat(schedules::ToText(instruction_.opcode), " without its ", schedules::ToText(role)));
    }
    return *operand;
  }
  Memory Of(Role role) const { return memory_.At(program_, At(role), parity_); }
  Memory OfOptional(Role role) const { return Has(role) ? Of(role) : Memory{}; }  // none: no memory
  bool Adds(Role role) const { return At(role).mode == Mode::kAdds; }

  std::vector<const Operand*> All(Role role) const {
    std::vector<const Operand*> all;
    for (const Operand& operand : instruction_.operands) {
      if (operand.role == role) {
        all.push_back(&operand);
      }
    }
    return all;
  }
  std::vector<Memory> AllOf(Role role) const {
    std::vector<Memory> all;
    for (const Operand* operand : All(role)) {
      all.push_back(memory_.At(program_, *operand, parity_));
    }
    return all;
  }

 private:
  const Program& program_;
  const Instruction& instruction_;
  const int parity_;
  const StageMemory& memory_;
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
    case Opcode::kBackwardInput:
      return model::Pass::kBackwardInput;
    case Opcode::kBackwardWeight:
      return model::Pass::kBackwardWeight;
    default:
      throw std::logic_error(absl::StrCat(schedules::ToText(opcode), " is not a pass of a node"));
  }
}

model::UnitTypes TypesOf(const plan::JobPlan& plan, schedules::UnitId unit, int part) {
  return model::TypesOf(plan.units.at(unit), part, plan.precision);
}

// The type of the elements of a part of a buffer that holds parameters or their gradients; none for other
// kinds.
std::optional<model::ComputeType> ParameterTypeOf(const plan::JobPlan& plan, const Buffer& buffer, int part) {
  switch (buffer.kind) {
    case BufferKind::kGathered:
    case BufferKind::kOuterGathered:
    case BufferKind::kPublished:
    case BufferKind::kWeights:  // where they are not published
      return TypesOf(plan, buffer.subject, part).compute;
    case BufferKind::kContribution:
      return TypesOf(plan, buffer.subject, part).transport;
    case BufferKind::kCollected:
      return TypesOf(plan, buffer.subject, part).main;
    default:
      return std::nullopt;
  }
}

fsdp::AdamWConfig AdamW(const plan::JobPlan& plan) {
  const plan::OptimizerConfig& config = plan.train.optimizer;
  return {.beta1 = config.beta1,
          .beta2 = config.beta2,
          .epsilon = config.epsilon,
          .weight_decay = config.weight_decay};
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
      await_batch_(std::move(await_batch)),
      uncounted_(std::make_unique<std::array<std::vector<int64_t>, 2>>()) {
  int microbatches = 0;
  for (const Program* program : plan.stage.All()) {
    microbatches = std::max(microbatches, program->num_microbatches);
  }
  uncounted_->fill(std::vector<int64_t>(microbatches));
}

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

// The norm's instruction depends on those that load the batches of its run.
fsdp::GradientNormConfig Binder::NormConfig(int parity, int microbatches) const {
  const std::vector<int64_t>& uncounted = uncounted_->at(parity);
  return {.mean = {.num_microbatches = plan::MicrobatchesPerStep(plan_),
                   .targets = static_cast<double>(plan_.batch.tokens()),
                   .max_norm = plan_.train.optimizer.clip_grad_norm},
          .uncounted = [&uncounted, microbatches] {
            return std::accumulate(uncounted.begin(), uncounted.begin() + microbatches, int64_t{0});
          }};
}

Call Binder::BindOpcode(const Program& program, const Instruction& instruction, int parity,
                        comm::Communicator* communicator) const {
  device::Device& device = backend_.device();
  const Operands operands(program, instruction, parity, memory_);
  switch (instruction.opcode) {
    case Opcode::kLoadInputs:
      return [&device, host = operands.Of(Role::kSource), inputs = operands.Of(Role::kCopy)] {
        device.CopyToDevice(inputs.begin, host.begin, host.bytes);
      };
    case Opcode::kLoadBatch:
      return [this, &device, host = operands.Of(Role::kSource), tokens = operands.Of(Role::kCopy), parity,
              microbatch = instruction.microbatch] {
        await_batch_(parity, microbatch);
        if (plan::CountsTargets(plan_)) {
          uncounted_->at(parity).at(microbatch) = plan_.batch.Uncounted(host.as<const int64_t>());
        }
        device.CopyToDevice(tokens.begin, host.begin, host.bytes);
      };
    case Opcode::kForward:
    case Opcode::kRecompute:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight:
      return nodes_.at(instruction.target)
          ->Bind(PassOf(instruction.opcode), PassMemory(program, instruction, parity), communicator);
    case Opcode::kUnshard:
      return units_.at(instruction.target)
          .BindUnshard(*communicator, operands.Of(Role::kShard), operands.Of(Role::kGathered));
    case Opcode::kUnshardOuter:
      return units_.at(instruction.target)
          .BindUnshardOuter(*communicator, operands.Of(Role::kShard), operands.Of(Role::kGathered));
    case Opcode::kReduceGradients: {
      const bool accumulated = operands.Has(Role::kSum);
      return units_.at(instruction.target)
          .BindReduceGradients(communicator,
                               {.contribution = operands.Of(accumulated ? Role::kSum : Role::kContribution),
                                .accumulated = accumulated,
                                .staging = operands.OfOptional(Role::kStaging),
                                .gradients = operands.Of(Role::kReduced),
                                .norm_terms = operands.OfOptional(Role::kNormTerms)},
                               operands.Adds(Role::kReduced));
    }
    case Opcode::kRound: {
      const model::UnitTypes types =
          TypesOf(plan_, instruction.target, operands.At(Role::kContribution).part);
      return fsdp::BindCopy(operands.Of(Role::kCollected), model::ElementKindOf(types.main),
                            operands.Of(Role::kContribution), model::ElementKindOf(types.transport), device,
                            backend_.shard_kernels());
    }
    case Opcode::kReduceOuter:
      return units_.at(instruction.target)
          .BindReduceOuter(*communicator, {.gradients = operands.Of(Role::kReduced),
                                           .staging = operands.Of(Role::kStaging),
                                           .norm_terms = operands.Of(Role::kNormTerms)});
    case Opcode::kAccumulate:
      return units_.at(instruction.target)
          .BindAccumulate(operands.Of(Role::kContribution), operands.Of(Role::kSum),
                          operands.Adds(Role::kSum));
    case Opcode::kZero:
      return [&device, part = operands.Of(Role::kContribution)] { device.Fill(part.begin, 0, part.bytes); };
    case Opcode::kGradientNorm: {
      std::vector<Memory> norm_terms;
      for (const Operand* operand : operands.All(Role::kNormTerms)) {
        const fsdp::UnitShard& unit = units_.at(program.buffers[operand->buffer].subject);
        for (const Memory& of_class : unit.NormTermsByClass(memory_.At(program, *operand, parity))) {
          norm_terms.push_back(of_class);
        }
      }
      return fsdp::BindGradientNorm(*communicator,
                                    {.norm_terms = std::move(norm_terms),
                                     .inputs = operands.Of(Role::kInputs),
                                     .outcome = operands.Of(Role::kOutcome)},
                                    NormConfig(parity, program.num_microbatches), backend_.shard_kernels());
    }
    case Opcode::kOptimizerStep: {
      const Memory both = operands.Of(Role::kOptimizerState);
      const std::vector<schedules::BufferPart>& moments =
          program.buffers[operands.At(Role::kOptimizerState).buffer].parts;
      const auto moment = [&](size_t i) {
        return Memory{both.begin + moments.at(i).begin, moments[i].end - moments[i].begin};
      };
      fsdp::OptimizerMemory memory;
      memory.gradients = operands.Of(Role::kReduced);
      memory.outcome = operands.Of(Role::kOutcome);
      memory.inputs = operands.Of(Role::kInputs);
      memory.state.weights = operands.Of(Role::kWeights);
      memory.state.exp_avg = moment(0);
      memory.state.exp_avg_sq = moment(1);
      memory.state.published = operands.OfOptional(Role::kPublished);
      memory.update_norms = operands.OfOptional(Role::kUpdateNorms);
      memory.scratch = operands.OfOptional(Role::kScratch);
      return units_.at(instruction.target).BindOptimizerStep(memory, AdamW(plan_));
    }
    case Opcode::kUpdateStates: {
      BiasesMemory memory{.outcome = operands.Of(Role::kOutcome),
                          .type = model::MainType(plan_.precision.common.compute)};
      const std::vector<const Operand*> counters = operands.All(Role::kCounter);
      const std::vector<const Operand*> states = operands.All(Role::kState);
      for (size_t i = 0; i < counters.size(); ++i) {
        memory.routers.push_back({.tokens = memory_.At(program, *counters[i], parity),
                                  .bias = memory_.At(program, *states.at(i), parity),
                                  .frozen = IsFrozen(plan_.outline, program.buffers[counters[i]->buffer])});
      }
      memory.exchanged = operands.Of(Role::kScratch);
      return BindBiasUpdates(*communicator, memory, plan_.model.moe.router_bias_update_rate,
                             backend_.operations());
    }
    case Opcode::kCopy:
    case Opcode::kReport:
    case Opcode::kSnapshot: {
      const std::vector<Memory> reads = operands.AllOf(Role::kSource);
      const std::vector<Memory> writes = operands.AllOf(Role::kCopy);
      if (reads.size() != writes.size()) {
        throw std::logic_error("such an instruction copies every buffer that it reads to one that it writes");
      }
      return [&device, reads, writes, to_host = instruction.opcode != Opcode::kCopy] {
        for (size_t i = 0; i < reads.size(); ++i) {
          if (to_host) {
            device.CopyToHost(writes[i].begin, reads[i].begin, reads[i].bytes);
          } else {
            device.Copy(writes[i].begin, reads[i].begin, reads[i].bytes);
          }
        }
      };
    }
    case Opcode::kHostWait:
      return [] {};  // the issuing thread waits (Executor)
    case Opcode::kSend:
    case Opcode::kReceive:
      return [communicator, sends = instruction.opcode == Opcode::kSend,
              memory = operands.Of(operands.Has(Role::kValue) ? Role::kValue : Role::kGradient)] {
        if (sends) {
          communicator->Send(memory);
        } else {
          communicator->Receive(memory);
        }
      };
  }
  throw std::logic_error(
      absl::StrCat("no trainer runs this: ", schedules::ToText(instruction, plan_.outline)));
}

// A recompute has no operand for a value that was kept, nor it or a validation for a gradient or state that
// the forward writes in training; their node's code has one for each.
std::vector<model::OperandMemory> Binder::PassMemory(const Program& program, const Instruction& instruction,
                                                     int parity) const {
  const bool again = instruction.opcode == Opcode::kRecompute;
  std::vector<schedules::PassOperand> declared;
  schedules::ListOperands(plan_.outline.nodes.at(instruction.target),
                          again ? Opcode::kForward : instruction.opcode, {}, /*trains=*/true, declared);
  std::vector<model::OperandMemory> memory;
  size_t found = 0;
  for (const schedules::PassOperand& what : declared) {
    const Operand* const operand = schedules::Find(program, instruction, what);
    memory.push_back(operand == nullptr ? model::OperandMemory{} : MemoryOf(program, *operand, parity));
    found += operand == nullptr ? 0 : 1;
  }
  if (found != instruction.operands.size()) {
    throw std::logic_error(absl::StrCat(schedules::ToText(instruction, plan_.outline),
                                        " has operands that its node does not declare"));
  }
  return memory;
}

model::OperandMemory Binder::MemoryOf(const Program& program, const Operand& operand, int parity) const {
  const Memory memory = memory_.At(program, operand, parity);
  model::OperandMemory result{
      .begin = memory.begin, .bytes = memory.bytes, .adds = operand.mode == Mode::kAdds};
  const Buffer& buffer = program.buffers[operand.buffer];
  const std::optional<model::ComputeType> type = ParameterTypeOf(plan_, buffer, operand.part);
  if (!type.has_value()) {
    return result;
  }
  result.type = *type;
  const schedules::PartRange& part = plan_.outline.units[buffer.subject].parts.at(operand.part);
  const fsdp::Layout& layout = plan_.layouts[buffer.subject].at(part.of_class);
  for (const fsdp::Parameter& parameter : layout.parameters) {
    if (parameter.range.begin >= part.begin && parameter.range.end <= part.end) {
      result.parameters.push_back(memory.begin +
                                  (parameter.range.begin - part.begin) * model::ElementBytes(*type));
    }
  }
  return result;
}

}  // namespace tandem::trainer
