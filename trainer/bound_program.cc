#include "trainer/bound_program.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "device/arena.h"
#include "fsdp/layout.h"
#include "fsdp/sharded_unit.h"
#include "plan/job_plan.h"
#include "schedules_v1/effects.h"
#include "schedules_v1/text.h"
#include "trainer/rank_memory.h"

namespace tandem::trainer {

using schedules_v1::Access;
using schedules_v1::Instruction;
using schedules_v1::Opcode;
using schedules_v1::SlotRole;
using schedules_v1::SlotUse;
using schedules_v1::StreamKind;
using schedules_v1::UnitId;
using schedules_v1::UnitPart;
using schedules_v1::ValueId;

// Goes through a program once, as the issuing thread would.
class BoundProgram::Binder {
 public:
  Binder(const plan::JobPlan& plan, const std::vector<std::unique_ptr<model::Node>>& nodes,
         RankMemory& memory, std::vector<std::unique_ptr<device::PinnedBuffer>>& losses)
      : plan_(plan), nodes_(nodes), memory_(memory), losses_(losses) {}

  void Bind(const Instruction& instruction, BoundInstruction& bound) {
    switch (instruction.opcode) {
      case Opcode::kLoadBatch:
        BindLoadBatch(instruction, bound);
        break;
      case Opcode::kForward:
        BindPass(instruction, model::Pass::kForward, bound);
        break;
      case Opcode::kBackward:
        BindPass(instruction, model::Pass::kBackward, bound);
        break;
      case Opcode::kBackwardInput:
        BindPass(instruction, model::Pass::kBackwardInput, bound);
        break;
      case Opcode::kBackwardWeight:
        BindPass(instruction, model::Pass::kBackwardWeight, bound);
        break;
      case Opcode::kUnshard:
        bound.unit = &Unit(instruction.target);
        bound.slot = {SlotOf(instruction.slots.at(0))};
        break;
      case Opcode::kReshard:
        bound.dead = {SlotOf(instruction.slots.at(0))};
        break;
      case Opcode::kReduceGradients:
        bound.unit = &Unit(instruction.target);
        bound.slot = {SlotOf(instruction.slots.at(0))};
        bound.staging = {memory_.staging().narrow(0, 0, bound.slot[0].numel())};
        break;
      case Opcode::kOptimizerStep:
        bound.unit = &Unit(instruction.target);
        break;
      case Opcode::kRelease:
        BindRelease(instruction, bound);
        break;
      case Opcode::kGradientNorm:
      case Opcode::kReport:
        break;
      case Opcode::kSnapshot:
        throw std::logic_error("no program of this version takes a snapshot");
    }
  }

  void CheckEnd() const {
    for (const auto* live : {&values_, &gradients_}) {
      if (!live->empty()) {
        throw std::logic_error(plan_.outline_v1.values[live->begin()->first.first].name + " is never released");
      }
    }
  }

 private:
  using Key = std::pair<ValueId, int>;  // value, microbatch

  fsdp::ShardedUnit& Unit(UnitId unit) { return memory_.units().at(unit); }

  at::Tensor SlotOf(const SlotUse& use) {
    const int64_t elements = fsdp::GatheredElements(plan_.layouts.at(use.unit), plan_.train.ranks);
    return memory_.Slot(use.role, use.size_class, use.index).narrow(0, 0, elements);
  }

  // The items of one part of a unit, as views of the slot that the instruction uses for it.
  std::vector<at::Tensor> PartViews(const Instruction& instruction, SlotRole role, const UnitPart& part) {
    for (const SlotUse& use : instruction.slots) {
      if (use.role != role || use.unit != part.unit) {
        continue;
      }
      const std::vector<at::Tensor> items = fsdp::ParameterViews(plan_.layouts[part.unit], SlotOf(use));
      std::vector<at::Tensor> views;
      for (size_t i = 0; i < items.size(); ++i) {
        if (plan_.units[part.unit].parameters[i].part == part.part) {
          views.push_back(items[i]);
        }
      }
      return views;
    }
    throw std::logic_error(schedules_v1::ToText(instruction, plan_.outline_v1) + " has no slot for " +
                           plan_.outline_v1.units.at(part.unit).name);
  }

  void BindLoadBatch(const Instruction& instruction, BoundInstruction& bound) {
    const at::Tensor tokens = memory_.arena().Allocate(
        {plan_.batch.sequences, plan_.batch.sequence_length + 1}, c10::ScalarType::Long);
    bound.tokens = memory_.device().MakePinnedBuffer(tokens);
    values_.emplace(Key{instruction.target, instruction.microbatch}, tokens);
  }

  void BindPass(const Instruction& instruction, model::Pass pass, BoundInstruction& bound) {
    const Access& access =
        schedules_v1::AccessOf(plan_.outline_v1.nodes.at(instruction.target), instruction.opcode);
    const int microbatch = instruction.microbatch;
    for (const ValueId value : access.reads) {
      bound.reads.push_back(values_.at({value, microbatch}));
    }
    for (const ValueId value : access.gradient_reads) {
      bound.gradient_reads.push_back(gradients_.at({value, microbatch}));
    }
    bound.writes.resize(access.writes.size());
    bound.gradient_writes.resize(access.gradient_writes.size());
    bound.add_gradient = std::make_unique<bool[]>(access.gradient_writes.size());
    for (size_t i = 0; i < access.gradient_writes.size(); ++i) {
      bound.add_gradient[i] = instruction.add_value_gradients.at(i);
      if (bound.add_gradient[i]) {
        bound.gradient_writes[i] = gradients_.at({access.gradient_writes[i], microbatch});
      }
    }
    for (const UnitPart& part : access.parameters) {
      bound.parameters.push_back(PartViews(instruction, SlotRole::kParameters, part));
    }
    for (const UnitPart& part : access.parameter_gradients) {
      bound.parameter_gradients.push_back(PartViews(instruction, SlotRole::kGradients, part));
    }
    bound.add_parameter_gradient = std::make_unique<bool[]>(access.parameter_gradients.size());
    for (size_t i = 0; i < access.parameter_gradients.size(); ++i) {
      bound.add_parameter_gradient[i] = instruction.add_parameter_gradients.at(i);
    }
    for (const auto& views : bound.parameters) {
      bound.parameter_pointers.push_back(views.data());
    }
    for (auto& views : bound.parameter_gradients) {
      bound.parameter_gradient_pointers.push_back(views.data());
    }
    bound.scratch.resize(1);

    bound.node = nodes_.at(instruction.target).get();
    bound.call = {.pass = pass,
                  .reads = bound.reads.data(),
                  .writes = bound.writes.data(),
                  .gradient_reads = bound.gradient_reads.data(),
                  .gradient_writes = bound.gradient_writes.data(),
                  .add_gradient = bound.add_gradient.get(),
                  .parameters = bound.parameter_pointers.data(),
                  .parameter_gradients = bound.parameter_gradient_pointers.data(),
                  .add_parameter_gradient = bound.add_parameter_gradient.get(),
                  .scratch = bound.scratch.data()};
    bound.node->Prepare(bound.call, memory_.arena());

    for (size_t i = 0; i < access.writes.size(); ++i) {
      values_.emplace(Key{access.writes[i], microbatch}, bound.writes[i]);
      if (access.writes[i] == plan_.outline_v1.loss) {
        if (bound.writes[i].numel() != 1 || bound.writes[i].scalar_type() != c10::ScalarType::Double) {
          throw std::logic_error("the loss is one double");
        }
        losses_.at(microbatch) = memory_.device().MakePinnedBuffer(bound.writes[i]);
      }
    }
    for (size_t i = 0; i < access.gradient_writes.size(); ++i) {
      gradients_.insert_or_assign(Key{access.gradient_writes[i], microbatch}, bound.gradient_writes[i]);
    }
    if (bound.scratch[0].defined()) {
      memory_.arena().Free(bound.scratch[0]);
    }
  }

  void BindRelease(const Instruction& instruction, BoundInstruction& bound) {
    auto& live = instruction.of_gradient ? gradients_ : values_;
    const auto found = live.find({instruction.target, instruction.microbatch});
    if (found == live.end()) {
      throw std::logic_error(schedules_v1::ToText(instruction, plan_.outline_v1) + ": nothing is there");
    }
    memory_.arena().Free(found->second);
    bound.dead = {found->second};
    live.erase(found);
  }

  const plan::JobPlan& plan_;
  const std::vector<std::unique_ptr<model::Node>>& nodes_;
  RankMemory& memory_;
  std::vector<std::unique_ptr<device::PinnedBuffer>>& losses_;
  std::map<Key, at::Tensor> values_;
  std::map<Key, at::Tensor> gradients_;
};

BoundProgram::BoundProgram(const schedules_v1::Program& program, const plan::JobPlan& plan,
                           const std::vector<std::unique_ptr<model::Node>>& nodes, RankMemory& memory)
    : program_(program), instructions_(program.instructions.size()), losses_(program.num_microbatches) {
  for (const schedules_v1::Value& value : plan.outline_v1.values) {
    if (value.bytes.expected != value.bytes.bound ||
        value.gradient_bytes.expected != value.gradient_bytes.bound) {
      throw std::logic_error(value.name + " has no fixed size");
    }
  }
  Binder binder(plan, nodes, memory, losses_);
  for (size_t i = 0; i < instructions_.size(); ++i) {
    instructions_[i].instruction = &program.instructions[i];
    instructions_[i].index = static_cast<int>(i);
    binder.Bind(program.instructions[i], instructions_[i]);
  }
  binder.CheckEnd();
  MakeSegments();
}

BoundProgram::~BoundProgram() = default;

// A segment is issued at the place of its first instruction. That is earlier than the program says for the
// others, and right: they wait for nothing but that their stream gets there.
void BoundProgram::MakeSegments() {
  std::vector<bool> awaited(instructions_.size());
  for (const BoundInstruction& bound : instructions_) {
    for (const int index : bound.instruction->waits) {
      awaited[index] = true;
    }
  }
  std::vector<int> segment_of(instructions_.size());
  std::map<StreamKind, int> open;
  for (const BoundInstruction& bound : instructions_) {
    const Instruction& instruction = *bound.instruction;
    const auto found = open.find(instruction.stream);
    int segment = found == open.end() ? -1 : found->second;
    if (segment < 0 || !instruction.waits.empty()) {
      segment = static_cast<int>(segments_.size());
      segments_.push_back({.stream = instruction.stream});
      for (const int index : instruction.waits) {
        segments_.back().waits.push_back(segment_of[index]);
      }
    }
    segment_of[bound.index] = segment;
    segments_[segment].instructions.push_back(&bound);
    segments_[segment].awaited = awaited[bound.index];
    open[instruction.stream] = awaited[bound.index] ? -1 : segment;
  }
}

}  // namespace tandem::trainer
