#include "schedules_v1/effects.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "schedules_v1/text.h"

namespace tandem::schedules_v1 {
namespace {

std::vector<int> ClassBegins(const std::vector<const Program*>& programs, std::vector<int> Program::*counts) {
  std::vector<int> largest;
  for (const Program* program : programs) {
    const std::vector<int>& of_program = program->*counts;
    largest.resize(std::max(largest.size(), of_program.size()));
    for (size_t i = 0; i < of_program.size(); ++i) {
      largest[i] = std::max(largest[i], of_program[i]);
    }
  }
  std::vector<int> begins = {0};
  for (const int count : largest) {
    begins.push_back(begins.back() + count);
  }
  return begins;
}

}  // namespace

EffectTable::EffectTable(const Outline& outline, const std::vector<const Program*>& programs)
    : outline_(outline),
      parameter_class_begin_(ClassBegins(programs, &Program::parameter_slots)),
      gradient_class_begin_(ClassBegins(programs, &Program::gradient_slots)) {
  for (const Program* program : programs) {
    num_microbatches_ = std::max(num_microbatches_, program->num_microbatches);
  }
  const int units = static_cast<int>(outline.units.size());
  const int values = static_cast<int>(outline.values.size()) * num_microbatches_;
  const int sizes[] = {parameter_class_begin_.back(),
                       gradient_class_begin_.back(),
                       units,
                       units,
                       units,
                       values,
                       values,
                       /*staging*/ 1,
                       /*norm result*/ 1,
                       /*communicators*/ 4};
  static_assert(std::size(sizes) == std::size(decltype(begin_){}));
  for (size_t kind = 0; kind < std::size(sizes); ++kind) {
    begin_[kind] = num_resources_;
    num_resources_ += sizes[kind];
  }
}

ResourceId EffectTable::Slot(SlotRole role, int size_class, int index) const {
  return role == SlotRole::kParameters
             ? At(ResourceKind::kParameterSlot, parameter_class_begin_[size_class] + index)
             : At(ResourceKind::kGradientSlot, gradient_class_begin_[size_class] + index);
}

// Microbatch by microbatch, so that what one microbatch touches lies together.
ResourceId EffectTable::Value(ValueId value, int microbatch) const {
  return At(ResourceKind::kValue, microbatch * static_cast<int>(outline_.values.size()) + value);
}

ResourceId EffectTable::ValueGradient(ValueId value, int microbatch) const {
  return At(ResourceKind::kValueGradient, microbatch * static_cast<int>(outline_.values.size()) + value);
}

void EffectTable::Effects(const Instruction& instruction, int num_microbatches,
                          std::vector<Effect>& effects) const {
  effects.clear();
  const auto read = [&](ResourceId resource) { effects.push_back({resource, false}); };
  const auto write = [&](ResourceId resource) { effects.push_back({resource, true}); };
  const int target = instruction.target;
  const int microbatch = instruction.microbatch;

  if (instruction.communicator != Communicator::kNone) {
    write(At(ResourceKind::kCommunicator, static_cast<int>(instruction.communicator)));
  }
  // Parameter slots are written by Unshard and Reshard, gradient slots by the passes of nodes.
  for (const SlotUse& slot : instruction.slots) {
    const bool of_parameters = slot.role == SlotRole::kParameters;
    effects.push_back(
        {Slot(slot.role, slot.size_class, slot.index), of_parameters != TargetsNode(instruction.opcode)});
  }

  switch (instruction.opcode) {
    case Opcode::kLoadBatch:
      write(Value(target, microbatch));
      break;
    case Opcode::kForward:
    case Opcode::kBackward:
    case Opcode::kBackwardInput:
    case Opcode::kBackwardWeight: {
      const Access& access = AccessOf(outline_.nodes[target], instruction.opcode);
      for (const ValueId value : access.reads) {
        read(Value(value, microbatch));
      }
      for (const ValueId value : access.writes) {
        write(Value(value, microbatch));
      }
      for (const ValueId value : access.gradient_reads) {
        read(ValueGradient(value, microbatch));
      }
      for (const ValueId value : access.gradient_writes) {
        write(ValueGradient(value, microbatch));
      }
      break;
    }
    case Opcode::kUnshard:
      read(At(ResourceKind::kWeightShard, target));
      break;
    case Opcode::kReshard:
      break;
    case Opcode::kReduceGradients:
      write(At(ResourceKind::kGradientShard, target));
      write(At(ResourceKind::kStaging, 0));
      break;
    case Opcode::kGradientNorm:
      for (size_t unit = 0; unit < outline_.units.size(); ++unit) {
        read(At(ResourceKind::kGradientShard, static_cast<int>(unit)));
      }
      write(At(ResourceKind::kNormResult, 0));
      break;
    case Opcode::kOptimizerStep:
      read(At(ResourceKind::kGradientShard, target));
      read(At(ResourceKind::kNormResult, 0));
      write(At(ResourceKind::kWeightShard, target));
      write(At(ResourceKind::kOptimizerState, target));
      break;
    case Opcode::kReport:
      read(At(ResourceKind::kNormResult, 0));
      for (size_t unit = 0; unit < outline_.units.size(); ++unit) {
        read(At(ResourceKind::kOptimizerState, static_cast<int>(unit)));
      }
      for (int i = 0; i < num_microbatches; ++i) {
        read(Value(outline_.loss, i));
      }
      break;
    case Opcode::kSnapshot:
      for (size_t unit = 0; unit < outline_.units.size(); ++unit) {
        read(At(ResourceKind::kWeightShard, static_cast<int>(unit)));
        read(At(ResourceKind::kOptimizerState, static_cast<int>(unit)));
      }
      break;
    case Opcode::kRelease:
      write(instruction.of_gradient ? ValueGradient(target, microbatch) : Value(target, microbatch));
      break;
  }
}

std::string EffectTable::Name(ResourceId resource) const {
  int kind = static_cast<int>(std::size(begin_)) - 1;
  while (begin_[kind] > resource) {
    --kind;
  }
  const int offset = resource - begin_[kind];
  const auto slot = [offset](const std::vector<int>& begins) {
    const int size_class =
        static_cast<int>(std::upper_bound(begins.begin(), begins.end(), offset) - begins.begin()) - 1;
    return absl::StrCat(size_class, ".", offset - begins[size_class]);
  };
  const auto value = [&] {
    const int values = static_cast<int>(outline_.values.size());
    return absl::StrCat(outline_.values[offset % values].name, " of microbatch ", offset / values);
  };
  switch (static_cast<ResourceKind>(kind)) {
    case ResourceKind::kParameterSlot:
      return absl::StrCat("parameter slot p", slot(parameter_class_begin_));
    case ResourceKind::kGradientSlot:
      return absl::StrCat("gradient slot g", slot(gradient_class_begin_));
    case ResourceKind::kWeightShard:
      return absl::StrCat("the weight shard of ", outline_.units[offset].name);
    case ResourceKind::kGradientShard:
      return absl::StrCat("the gradient shard of ", outline_.units[offset].name);
    case ResourceKind::kOptimizerState:
      return absl::StrCat("the optimizer state of ", outline_.units[offset].name);
    case ResourceKind::kValue:
      return absl::StrCat("value ", value());
    case ResourceKind::kValueGradient:
      return absl::StrCat("the gradient of ", value());
    case ResourceKind::kStaging:
      return "the reduce staging buffer";
    case ResourceKind::kNormResult:
      return "the norm result";
    case ResourceKind::kCommunicator:
      return absl::StrCat("communicator ", ToText(static_cast<Communicator>(offset)));
  }
  return "";
}

}  // namespace tandem::schedules_v1
