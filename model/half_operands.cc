// SPDX-License-Identifier: Apache-2.0
#include "model/half_operands.h"

#include <map>
#include <stdexcept>
#include <string>

#include "model/whole_backward.h"

namespace tandem::model {
namespace {

using Memories = std::map<std::string, OperandMemory>;

// The operands of the whole, by what they are.
class WholeOperands {
 public:
  WholeOperands(const NodeDeclaration& declaration, const NodeTypes& types,
                absl::Span<const OperandMemory> operands)
      : declaration_(declaration), types_(types), scratch_(LayOutWholeScratch(declaration, types)) {
    const PassSpec whole = WholeBackward(*declaration.halves);
    size_t next = 0;
    const auto take = [&]() -> const OperandMemory& {
      if (next == operands.size()) {
        throw std::logic_error("a whole backward has only " + std::to_string(next) + " operands");
      }
      return operands[next++];
    };
    for (const std::string& name : whole.reads) {
      values_[name] = take();
    }
    for (const std::string& name : whole.gradient_reads) {
      gradients_[name] = take();
    }
    for (const std::string& name : whole.gradient_writes) {
      gradients_[name] = take();
    }
    for (size_t part = 0; part < declaration.parts.size() && whole.parameters; ++part) {
      parameters_.push_back(take());
    }
    for (const PartSpec& part : declaration.parts) {
      if (whole.parameter_gradients && !part.frozen) {
        parameter_gradients_.push_back(take());
      }
    }
    if (scratch_.bytes > 0) {
      memory_ = take();
    }
    if (next != operands.size() || memory_.bytes < scratch_.bytes) {
      throw std::logic_error("a whole backward has " + std::to_string(operands.size()) + " operands, not " +
                             std::to_string(next) + ", or less than " + std::to_string(scratch_.bytes) +
                             " bytes of scratch");
    }
    for (size_t i = 0; i < declaration.halves->intermediates.size(); ++i) {
      const TensorSpec& spec = declaration.halves->intermediates[i];
      values_[spec.name] = {.begin = memory_.begin + scratch_.intermediates[i],
                            .bytes = BytesOf(spec, types)};
    }
  }

  std::vector<OperandMemory> Of(const PassSpec& half) const {
    std::vector<OperandMemory> operands;
    const auto add = [&operands](const std::vector<std::string>& names, const Memories& memories) {
      for (const std::string& name : names) {
        operands.push_back(memories.at(name));
      }
    };
    add(half.reads, values_);
    add(half.writes, values_);
    add(half.gradient_reads, gradients_);
    add(half.gradient_writes, gradients_);
    if (half.parameters) {
      operands.insert(operands.end(), parameters_.begin(), parameters_.end());
    }
    if (half.parameter_gradients) {
      operands.insert(operands.end(), parameter_gradients_.begin(), parameter_gradients_.end());
    }
    if (const int64_t bytes = LayOutScratch(declaration_, half, types_).bytes; bytes > 0) {
      operands.push_back({.begin = memory_.begin + scratch_.half, .bytes = bytes});
    }
    return operands;
  }

 private:
  const NodeDeclaration& declaration_;
  const NodeTypes& types_;
  const WholeScratch scratch_;
  OperandMemory memory_;  // of the scratch
  Memories values_;
  Memories gradients_;
  std::vector<OperandMemory> parameters_;  // by part
  std::vector<OperandMemory> parameter_gradients_;
};

}  // namespace

HalfOperands SplitOperands(const NodeDeclaration& declaration, const NodeTypes& types,
                           absl::Span<const OperandMemory> whole) {
  const WholeOperands operands(declaration, types, whole);
  HalfOperands halves{.input = operands.Of(declaration.halves->input)};
  if (declaration.halves->weight.has_value()) {
    halves.weight = operands.Of(*declaration.halves->weight);
  }
  return halves;
}

}  // namespace tandem::model
