// SPDX-License-Identifier: Apache-2.0
#include "model/whole_backward.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace tandem::model {
namespace {

using Memories = std::map<std::string, OperandMemory>;

std::vector<const PassSpec*> Parts(const SplitBackward& halves) {
  std::vector<const PassSpec*> parts = {&halves.input};
  if (halves.weight.has_value()) {
    parts.push_back(&*halves.weight);
  }
  return parts;
}

// `more` behind `names`, each once, without intermediates.
void Merge(const SplitBackward& halves, const std::vector<std::string>& more,
           std::vector<std::string>& names) {
  for (const std::string& name : more) {
    const bool is_intermediate =
        std::any_of(halves.intermediates.begin(), halves.intermediates.end(),
                    [&name](const TensorSpec& intermediate) { return intermediate.name == name; });
    if (!is_intermediate && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
}

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

bool SplitsBackward(const NodeDeclaration& declaration) {
  return declaration.halves.has_value() && declaration.halves->weight.has_value();
}

PassSpec WholeBackward(const SplitBackward& halves) {
  PassSpec whole;
  for (const PassSpec* half : Parts(halves)) {
    Merge(halves, half->reads, whole.reads);
    Merge(halves, half->writes, whole.writes);
    Merge(halves, half->gradient_reads, whole.gradient_reads);
    Merge(halves, half->gradient_writes, whole.gradient_writes);
    whole.parameters = whole.parameters || half->parameters;
    whole.parameter_gradients = whole.parameter_gradients || half->parameter_gradients;
    whole.flops += half->flops;
    whole.link_bytes += half->link_bytes;
  }
  if (!whole.writes.empty()) {
    throw std::logic_error("a half of a backward writes " + whole.writes.front() +
                           ", which is not among its intermediates");
  }
  return whole;
}

WholeScratch LayOutWholeScratch(const NodeDeclaration& declaration, const NodeTypes& types) {
  WholeScratch scratch;
  for (const TensorSpec& intermediate : declaration.halves->intermediates) {
    scratch.intermediates.push_back(scratch.half);
    scratch.half += AlignedToPiece(BytesOf(intermediate, types));
  }
  for (const PassSpec* half : Parts(*declaration.halves)) {
    scratch.bytes = std::max(scratch.bytes, scratch.half + LayOutScratch(declaration, *half, types).bytes);
  }
  return scratch;
}

int64_t BackwardScratchBytes(const NodeDeclaration& declaration, const NodeTypes& types) {
  return declaration.halves.has_value() ? LayOutWholeScratch(declaration, types).bytes
                                        : LayOutScratch(declaration, declaration.backward, types).bytes;
}

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
