// SPDX-License-Identifier: Apache-2.0
#include "model/declared_node.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/bound_tensors.h"
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

// The operands of the halves, from those of the whole.
struct HalfOperands {
  std::vector<OperandMemory> input;
  std::vector<OperandMemory> weight;  // empty where there is no such half
};

// Throws std::logic_error where there are not as many as the whole has, or its scratch is too small.
HalfOperands SplitOperands(const NodeDeclaration& declaration, const NodeTypes& types,
                           absl::Span<const OperandMemory> whole) {
  const WholeOperands operands(declaration, types, whole);
  HalfOperands halves{.input = operands.Of(declaration.halves->input)};
  if (declaration.halves->weight.has_value()) {
    halves.weight = operands.Of(*declaration.halves->weight);
  }
  return halves;
}

}  // namespace

DeclaredPasses::DeclaredPasses(const NodeContext& context, NodeDeclaration declaration)
    : s_(context.shapes),
      types_(context.types),
      ops_(context.ops),
      epsilon_(context.config.rms_norm_eps),
      declaration_([&] {
        FreezeParts(context.config, context.unit, context.shapes, declaration);
        return std::move(declaration);
      }()) {}

BoundPass DeclaredPasses::Bind(Pass pass, absl::Span<const OperandMemory> operands,
                               comm::Communicator* communicator) const {
  if (pass != Pass::kBackward || !declaration_.halves.has_value()) {
    return BindOne(pass, operands, communicator);
  }
  const HalfOperands halves = SplitOperands(declaration_, types_, operands);
  if (!declaration_.halves->weight.has_value()) {
    return BindOne(Pass::kBackwardInput, halves.input, communicator);
  }
  return [input = BindOne(Pass::kBackwardInput, halves.input, communicator),
          weight = BindOne(Pass::kBackwardWeight, halves.weight, communicator)] {
    input();
    weight();
  };
}

BoundPass DeclaredPasses::BindOne(Pass pass, absl::Span<const OperandMemory> operands,
                                  comm::Communicator* communicator) const {
  BoundTensors tensors(declaration_, pass, operands, types_, ops_, communicator);
  BoundPass code = BindPass(pass, tensors);
  tensors.CheckAllUsed();
  return tensors.WithConversions(std::move(code));
}

at::Tensor DeclaredPasses::DocumentStarts(BoundTensors& in) const {
  if (!s_.packs_documents) {
    return {};
  }
  return in.Value("tokens").narrow(1, s_.length + 1, s_.length);
}

BoundPass DeclaredNode::BindPass(Pass pass, BoundTensors& in) const {
  return pass == Pass::kBackward ? BindBackward(in) : BindForward(in);
}

BoundPass SplitNode::BindPass(Pass pass, BoundTensors& in) const {
  switch (pass) {
    case Pass::kBackwardInput:
      return BindBackwardInput(in);
    case Pass::kBackwardWeight:
      return BindBackwardWeight(in);
    default:
      return BindForward(in);
  }
}

void SplitNode::CopyOrAdd(const at::Tensor& from, bool add, at::Tensor& to) {
  if (add) {
    to.add_(from);
  } else {
    to.copy_(from);
  }
}

}  // namespace tandem::model
