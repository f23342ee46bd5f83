#include "model/bound_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace tandem::model {
namespace {

at::ScalarType ElementTypeOf(ElementType element, ComputeType compute) {
  switch (element) {
    case ElementType::kCompute:
      return compute == ComputeType::kFp64 ? at::kDouble : at::kFloat;
    case ElementType::kFloat64:
      return at::kDouble;
    case ElementType::kInt64:
      return at::kLong;
    case ElementType::kByte:
      return at::kByte;
  }
  throw std::logic_error("no such element type");
}

}  // namespace

BoundTensors::BoundTensors(const NodeDeclaration& declaration, Pass pass,
                           absl::Span<const OperandMemory> operands, ComputeType type,
                           const ops::Operations& ops)
    : declaration_(declaration), pass_(pass), type_(type), operands_(operands), ops_(ops) {
  if (pass == Pass::kBackwardInput || pass == Pass::kBackwardWeight ||
      (pass == Pass::kRecompute && !declaration.recomputes)) {
    throw std::logic_error(absl::StrCat(Where(), "these nodes have no such pass"));
  }
  const PassSpec& spec = pass == Pass::kBackward ? declaration.backward : declaration.forward;
  AddValues(Role::kValue, spec.reads);
  AddValues(Role::kValue, spec.writes);
  AddValues(Role::kGradient, spec.gradient_reads);
  AddValues(Role::kGradient, spec.gradient_writes);
  if (spec.parameters) {
    AddParts(Role::kParameter);
  }
  if (spec.parameter_gradients) {
    AddParts(Role::kParameterGradient);
  }
  AddScratch(spec);
  if (next_ != operands_.size()) {
    throw std::logic_error(absl::StrCat(Where(), operands_.size(), " operands, not ", next_));
  }
  if (pass == Pass::kRecompute) {
    CheckRecompute();
  }
}

const OperandMemory& BoundTensors::Next() {
  if (next_ == operands_.size()) {
    throw std::logic_error(absl::StrCat(Where(), "only ", next_, " operands"));
  }
  return operands_[next_++];
}

void BoundTensors::AddValues(Role role, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const OperandMemory& operand = Next();
    const TensorSpec& spec = SpecOf(name);
    if (operand.begin != nullptr || pass_ != Pass::kRecompute) {
      CheckInside(spec, operand.begin, operand);
    }
    entries_.push_back({.role = role, .spec = spec, .begin = operand.begin, .adds = operand.adds});
  }
}

void BoundTensors::AddParts(Role role) {
  for (const PartSpec& part : declaration_.parts) {
    if (role == Role::kParameterGradient && part.frozen) {
      AddFrozen(part);
      continue;
    }
    const OperandMemory& operand = Next();
    if (operand.parameters.size() != part.parameters.size()) {
      throw std::logic_error(absl::StrCat(Where(), "part ", part.name, " has ", part.parameters.size(),
                                          " parameters, its memory ", operand.parameters.size()));
    }
    const ParameterSpec* before = nullptr;
    for (size_t i = 0; i < part.parameters.size(); ++i) {
      const ParameterSpec& parameter = part.parameters[i];
      char* begin = operand.parameters[i];
      const TensorSpec spec{parameter.block.empty() ? parameter.name : parameter.block, parameter.shape};
      CheckInside(spec, begin, operand);
      if (before != nullptr && !parameter.block.empty() && parameter.block == before->block) {
        Entry& block = entries_.back();
        if (begin != block.begin + BytesOf(block.spec, type_)) {
          throw std::logic_error(
              absl::StrCat(Where(), parameter.name, " does not follow ", before->name, " without a gap"));
        }
        block.spec.shape[0] += parameter.shape[0];
      } else {
        entries_.push_back({.role = role, .spec = spec, .begin = begin, .adds = operand.adds});
      }
      before = &parameter;
    }
  }
}

// Gradients without memory; those of vectors get theirs with the scratch.
void BoundTensors::AddFrozen(const PartSpec& part) {
  const std::string* block = nullptr;
  for (const ParameterSpec& parameter : part.parameters) {
    if (parameter.block.empty() || block == nullptr || *block != parameter.block) {
      entries_.push_back(
          {.role = Role::kParameterGradient,
           .spec = {parameter.block.empty() ? parameter.name : parameter.block, parameter.shape}});
    }
    block = parameter.block.empty() ? nullptr : &parameter.block;
  }
}

void BoundTensors::AddScratch(const PassSpec& spec) {
  const ScratchLayout pieces = LayOutScratch(spec, type_);
  const OperandMemory none;
  const OperandMemory& operand = pieces.bytes > 0 ? Next() : none;
  for (size_t i = 0; i < spec.scratch.size(); ++i) {
    char* begin = operand.begin == nullptr ? nullptr : operand.begin + pieces.offsets[i];
    CheckInside(spec.scratch[i], begin, operand);
    const auto frozen = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.role == Role::kParameterGradient && entry.begin == nullptr &&
             FrozenGradientScratch(entry.spec.name) == spec.scratch[i].name;
    });
    if (frozen != entries_.end()) {
      frozen->begin = begin;
    } else {
      entries_.push_back({.role = Role::kScratch, .spec = spec.scratch[i], .begin = begin});
    }
  }
}

void BoundTensors::CheckRecompute() const {
  const auto is_written = [&](const std::string& name) {
    for (const Entry& entry : entries_) {
      if (entry.role == Role::kValue && entry.spec.name == name) {
        return entry.begin != nullptr;
      }
    }
    return false;
  };
  for (const OutputSpec& output : declaration_.outputs) {
    for (const std::string& source : output.computed_from) {
      if (is_written(output.tensor.name) && !is_written(source)) {
        throw std::logic_error(absl::StrCat(Where(), output.tensor.name, " is computed from ", source,
                                            ", which must be recomputed with it"));
      }
    }
  }
}

void BoundTensors::CheckInside(const TensorSpec& spec, const char* begin,
                               const OperandMemory& operand) const {
  const int64_t bytes = BytesOf(spec, type_);
  if ((bytes > 0 && begin == nullptr) || begin < operand.begin ||
      begin + bytes > operand.begin + operand.bytes) {
    throw std::logic_error(absl::StrCat(Where(), spec.name, " takes ", bytes,
                                        " bytes, which are not in its memory of ", operand.bytes));
  }
}

const TensorSpec& BoundTensors::SpecOf(const std::string& value) const {
  for (const InputSpec& input : declaration_.inputs) {
    if (input.tensor.name == value) {
      return input.tensor;
    }
  }
  for (const OutputSpec& output : declaration_.outputs) {
    if (output.tensor.name == value) {
      return output.tensor;
    }
  }
  throw std::logic_error(absl::StrCat(Where(), "no value ", value, " is declared"));
}

BoundTensors::Entry& BoundTensors::Find(Role role, const std::string& name) {
  for (Entry& entry : entries_) {
    if (entry.role == role && entry.spec.name == name) {
      entry.used = true;
      return entry;
    }
  }
  throw std::logic_error(absl::StrCat(Where(), name, " is not declared"));
}

at::Tensor BoundTensors::TensorOf(Role role, const std::string& name) {
  const Entry& entry = Find(role, name);
  if (entry.begin == nullptr) {
    return {};
  }
  return at::for_blob(entry.begin, entry.spec.shape)
      .options(at::TensorOptions(ElementTypeOf(entry.spec.type, type_)).device(ops_.device()))
      .target_device(ops_.device())
      .make_tensor();
}

at::Tensor BoundTensors::Value(const std::string& name) { return TensorOf(Role::kValue, name); }

at::Tensor BoundTensors::Gradient(const std::string& value) { return TensorOf(Role::kGradient, value); }

at::Tensor BoundTensors::Parameter(const std::string& name) { return TensorOf(Role::kParameter, name); }

at::Tensor BoundTensors::ParameterGradient(const std::string& name) {
  return TensorOf(Role::kParameterGradient, name);
}

at::Tensor BoundTensors::Scratch(const std::string& name) { return TensorOf(Role::kScratch, name); }

bool BoundTensors::AddsToGradient(const std::string& value) { return Find(Role::kGradient, value).adds; }

bool BoundTensors::AddsToParameterGradient(const std::string& name) {
  return Find(Role::kParameterGradient, name).adds;
}

ops::Workspace BoundTensors::Work(const std::string& scratch) {
  const Entry& entry = Find(Role::kScratch, scratch);
  return {.begin = entry.begin, .bytes = BytesOf(entry.spec, type_)};
}

void BoundTensors::CheckAllUsed() const {
  for (const Entry& entry : entries_) {
    if (!entry.used) {
      throw std::logic_error(
          absl::StrCat(Where(), entry.spec.name, " is declared, but the code does not use it"));
    }
  }
}

std::string BoundTensors::Where() const {
  std::string name = declaration_.parts.empty() ? "node" : declaration_.parts.front().name;
  return absl::StrCat(name, " ", ToText(pass_), ": ");
}

}  // namespace tandem::model
