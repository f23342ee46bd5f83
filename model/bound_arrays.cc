// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::model {
namespace {

bool HasPass(const NodeDeclaration& declaration, Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return true;
    case Pass::kRecompute:
      return declaration.recomputes;
    case Pass::kBackwardInput:
      return true;
    case Pass::kBackwardWeight:
      return declaration.backward_weight.has_value();
  }
  return false;
}

const PassSpec& SpecOf(const NodeDeclaration& declaration, Pass pass) {
  switch (pass) {
    case Pass::kBackwardInput:
      return declaration.backward_input;
    case Pass::kBackwardWeight:
      return *declaration.backward_weight;
    default:
      return declaration.forward;
  }
}

}  // namespace

BoundArrays::BoundArrays(const NodeDeclaration& declaration, Pass pass,
                         absl::Span<const OperandMemory> operands, const NodeTypes& types,
                         const ops::Operations& ops, comm::Communicator* communicator)
    : declaration_(declaration),
      pass_(pass),
      types_(types),
      operands_(operands),
      ops_(ops),
      communicator_(communicator) {
  if (!HasPass(declaration, pass)) {
    throw std::logic_error(absl::StrCat(Where(), "these nodes have no such pass"));
  }
  if (declaration.group.empty() != (communicator == nullptr)) {
    throw std::logic_error(absl::StrCat(Where(), declaration.group.empty()
                                                     ? "a communicator that the nodes do not declare"
                                                     : "no communicator, and the nodes declare one"));
  }
  const PassSpec& spec = SpecOf(declaration, pass);
  AddValues(Role::kValue, spec.reads, false);
  AddValues(Role::kValue, spec.writes, true);
  AddValues(Role::kGradient, spec.gradient_reads, false);
  AddValues(Role::kGradient, spec.gradient_writes, true);
  if (spec.parameters) {
    AddParts(Role::kParameter);
  }
  if (spec.parameter_gradients) {
    AddParts(Role::kParameterGradient);
  }
  AddStates(spec.state_reads, false);
  AddStates(spec.state_adds, true);
  AddStates(spec.state_carries, true);
  AddScratch(spec);
  if (next_ != operands_.size()) {
    throw std::logic_error(absl::StrCat(Where(), operands_.size(), " operands, not ", next_));
  }
  if (pass == Pass::kRecompute) {
    CheckRecompute();
  }
}

const OperandMemory& BoundArrays::Next() {
  if (next_ == operands_.size()) {
    throw std::logic_error(absl::StrCat(Where(), "only ", next_, " operands"));
  }
  return operands_[next_++];
}

void BoundArrays::AddValues(Role role, const std::vector<std::string>& names, bool writes) {
  for (const std::string& name : names) {
    const OperandMemory& operand = Next();
    const TensorSpec& spec = ValueOf(declaration_, name);
    const bool omitted = operand.begin == nullptr &&
                         (pass_ == Pass::kRecompute || (pass_ == Pass::kForward && role == Role::kGradient));
    if (!omitted) {
      CheckInside(spec.name, BytesOf(spec, types_), operand.begin, operand);
    }
    entries_.push_back({.role = role,
                        .spec = spec,
                        .type = StoredType(spec),
                        .begin = operand.begin,
                        .writes = writes,
                        .adds = operand.adds});
  }
}

void BoundArrays::AddParts(Role role) {
  for (const PartSpec& part : declaration_.parts) {
    if (role == Role::kParameterGradient && part.frozen) {
      AddWithoutMemory(part);
      continue;
    }
    const OperandMemory& operand = Next();
    if (role == Role::kParameterGradient && pass_ == Pass::kForward && operand.begin == nullptr) {
      AddWithoutMemory(part);
      continue;
    }
    if (operand.parameters.size() != part.parameters.size()) {
      throw std::logic_error(absl::StrCat(Where(), "part ", part.name, " has ", part.parameters.size(),
                                          " parameters, its memory ", operand.parameters.size()));
    }
    if (const ComputeType type = TypeOf(ParameterType(part), types_);
        role == Role::kParameter && operand.type != type) {
      throw std::logic_error(absl::StrCat(Where(), "part ", part.name, " is of ", ToText(operand.type),
                                          ", and the node takes it in ", ToText(type)));
    }
    const auto bytes_of = [&](const TensorSpec& spec) {
      return NumElements(spec.shape) * ElementBytes(operand.type);
    };
    const ParameterSpec* before = nullptr;
    for (size_t i = 0; i < part.parameters.size(); ++i) {
      const ParameterSpec& parameter = part.parameters[i];
      char* begin = operand.parameters[i];
      const TensorSpec spec{
          parameter.block.empty() ? parameter.name : parameter.block, parameter.shape,
          role == Role::kParameterGradient ? GradientType(part, parameter) : ParameterType(part)};
      CheckInside(spec.name, bytes_of(spec), begin, operand);
      if (before != nullptr && !parameter.block.empty() && parameter.block == before->block) {
        Entry& block = entries_.back();
        if (begin != block.begin + bytes_of(block.spec)) {
          throw std::logic_error(
              absl::StrCat(Where(), parameter.name, " does not follow ", before->name, " without a gap"));
        }
        block.spec.shape[0] += parameter.shape[0];
      } else {
        entries_.push_back({.role = role,
                            .spec = spec,
                            .type = ElementKindOf(operand.type),
                            .begin = begin,
                            .writes = role == Role::kParameterGradient,
                            .adds = operand.adds});
      }
      before = &parameter;
    }
  }
}

void BoundArrays::AddStates(const std::vector<std::string>& names, bool adds) {
  for (const std::string& name : names) {
    const auto spec = std::find_if(declaration_.states.begin(), declaration_.states.end(),
                                   [&name](const TensorSpec& state) { return state.name == name; });
    if (spec == declaration_.states.end()) {
      throw std::logic_error(absl::StrCat(Where(), "no state ", name, " is declared"));
    }
    const OperandMemory& operand = Next();
    if (operand.begin != nullptr || !adds) {
      CheckInside(name, BytesOf(*spec, types_), operand.begin, operand);
    }
    entries_.push_back({.role = Role::kState,
                        .spec = *spec,
                        .type = StoredType(*spec),
                        .begin = operand.begin,
                        .adds = operand.adds});
  }
}

// Adds gradients without memory; those of frozen vectors get theirs with the scratch.
void BoundArrays::AddWithoutMemory(const PartSpec& part) {
  const std::string* block = nullptr;
  for (const ParameterSpec& parameter : part.parameters) {
    if (parameter.block.empty() || block == nullptr || *block != parameter.block) {
      entries_.push_back({.role = Role::kParameterGradient,
                          .spec = {parameter.block.empty() ? parameter.name : parameter.block,
                                   parameter.shape, GradientType(part, parameter)}});
    }
    block = parameter.block.empty() ? nullptr : &parameter.block;
  }
}

void BoundArrays::AddScratch(const PassSpec& spec) {
  const ScratchLayout layout = LayOutScratch(declaration_, spec, types_);
  const OperandMemory none;
  const OperandMemory& operand = layout.bytes > 0 ? Next() : none;
  for (size_t i = 0; i < layout.pieces.size(); ++i) {
    const TensorSpec& piece = layout.pieces[i];
    char* begin = operand.begin == nullptr ? nullptr : operand.begin + layout.offsets[i];
    CheckInside(piece.name, BytesOf(piece, types_), begin, operand);
    const auto frozen = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.role == Role::kParameterGradient && entry.begin == nullptr &&
             FrozenGradientScratch(entry.spec.name) == piece.name;
    });
    if (frozen != entries_.end()) {
      frozen->begin = begin;
      frozen->type = StoredType(piece);
      continue;
    }
    entries_.push_back({.role = i < spec.scratch.size() ? Role::kScratch : Role::kConverted,
                        .spec = piece,
                        .type = StoredType(piece),
                        .begin = begin});
  }
}

void BoundArrays::CheckRecompute() const {
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

void BoundArrays::CheckInside(const std::string& name, int64_t bytes, const char* begin,
                              const OperandMemory& operand) const {
  if ((bytes > 0 && begin == nullptr) || begin < operand.begin ||
      begin + bytes > operand.begin + operand.bytes) {
    throw std::logic_error(absl::StrCat(Where(), name, " takes ", bytes,
                                        " bytes, which are not in its memory of ", operand.bytes));
  }
}

BoundArrays::Entry* BoundArrays::TryFind(Role role, const std::string& name) {
  for (Entry& entry : entries_) {
    if (entry.role == role && entry.spec.name == name) {
      entry.used = true;
      return &entry;
    }
  }
  return nullptr;
}

BoundArrays::Entry& BoundArrays::Find(Role role, const std::string& name) {
  if (Entry* const entry = TryFind(role, name)) {
    return *entry;
  }
  throw std::logic_error(absl::StrCat(Where(), name, " is not declared"));
}

ops::ElementKind BoundArrays::StoredType(const TensorSpec& spec) const {
  return spec.type == ElementType::kInt64  ? ops::ElementKind::kInt64
         : spec.type == ElementType::kByte ? ops::ElementKind::kByte
                                           : ElementKindOf(TypeOf(spec.type, types_));
}

ops::Array BoundArrays::ArrayOf(const Entry& entry) const {
  const std::vector<int64_t>& shape = entry.spec.shape;
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const int64_t columns = shape.empty() ? 1 : NumElements({shape.begin() + 1, shape.end()});
  return {entry.begin, entry.type, entry.spec.on_host ? ops::DeviceKind::kCpu : ops_.kind(), rows, columns};
}

ops::Array BoundArrays::ArrayIn(Role role, const std::string& name) {
  const Entry entry = Find(role, name);
  if (entry.begin == nullptr) {
    return {};
  }
  const bool is_gradient = role == Role::kGradient || role == Role::kParameterGradient;
  if (is_gradient || role == Role::kValue) {
    const Entry* const scratch = TryFind(Role::kConverted, is_gradient ? GradientName(name) : name);
    if (scratch != nullptr && scratch->type != entry.type) {
      return Converted(entry, *scratch);
    }
  }
  return ArrayOf(entry);
}

// Returns the array that the code gets in place of the entry.
ops::Array BoundArrays::Converted(const Entry& entry, const Entry& scratch) {
  const ops::Array stored = ArrayOf(entry);
  const ops::Array converted = ArrayOf(scratch);
  if (!entry.writes || entry.adds) {
    before_.push_back(ops_.Copy(stored, converted));
  }
  if (entry.writes) {
    after_.push_back(ops_.Copy(converted, stored));
  }
  return converted;
}

BoundPass BoundArrays::WithConversions(BoundPass code) {
  if (before_.empty() && after_.empty()) {
    return code;
  }
  ops::Calls calls;
  for (ops::Call& copy : before_) {
    calls.Add(std::move(copy));
  }
  calls.Add(std::move(code));
  for (ops::Call& copy : after_) {
    calls.Add(std::move(copy));
  }
  return calls;
}

ops::Array BoundArrays::Value(const std::string& name) { return ArrayIn(Role::kValue, name); }

ops::Array BoundArrays::Gradient(const std::string& value) { return ArrayIn(Role::kGradient, value); }

ops::Array BoundArrays::OverwrittenGradient(const std::string& value) {
  if (AddsToGradient(value)) {
    throw std::logic_error(absl::StrCat(Where(), "these nodes do not add to the gradient of ", value));
  }
  return Gradient(value);
}

ops::Array BoundArrays::Parameter(const std::string& name) { return ArrayIn(Role::kParameter, name); }

ops::Array BoundArrays::ParameterGradient(const std::string& name) {
  return ArrayIn(Role::kParameterGradient, name);
}

ops::Array BoundArrays::State(const std::string& name) { return ArrayIn(Role::kState, name); }

ops::Array BoundArrays::Scratch(const std::string& name) { return ArrayIn(Role::kScratch, name); }

bool BoundArrays::HasParameterGradient(const std::string& name) {
  return Find(Role::kParameterGradient, name).begin != nullptr;
}

bool BoundArrays::AddsToGradient(const std::string& value) { return Find(Role::kGradient, value).adds; }

bool BoundArrays::ContinuesState(const std::string& name) { return Find(Role::kState, name).adds; }

bool BoundArrays::AddsToParameterGradient(const std::string& name) {
  return Find(Role::kParameterGradient, name).adds;
}

comm::Communicator& BoundArrays::Communicator() {
  if (communicator_ == nullptr) {
    throw std::logic_error(absl::StrCat(Where(), "a communicator is not declared"));
  }
  communicator_used_ = true;
  return *communicator_;
}

ops::Workspace BoundArrays::Work(const std::string& scratch) {
  const Entry& entry = Find(Role::kScratch, scratch);
  return {.begin = entry.begin, .bytes = BytesOf(entry.spec, types_)};
}

void BoundArrays::CheckAllUsed() const {
  for (const Entry& entry : entries_) {
    if (!entry.used && entry.role != Role::kConverted) {
      throw std::logic_error(
          absl::StrCat(Where(), entry.spec.name, " is declared, but the code does not use it"));
    }
  }
  if (communicator_ != nullptr && !communicator_used_) {
    throw std::logic_error(
        absl::StrCat(Where(), "the communicator is declared, but the code does not use it"));
  }
}

std::string BoundArrays::Where() const {
  std::string name = declaration_.parts.empty() ? "node" : declaration_.parts.front().name;
  return absl::StrCat(name, " ", ToText(pass_), ": ");
}

}  // namespace tandem::model
