// SPDX-License-Identifier: Apache-2.0
#include "model/declared_node.h"

#include <utility>

#include "model/bound_tensors.h"

namespace tandem::model {

DeclaredNode::DeclaredNode(const NodeContext& context, NodeDeclaration declaration)
    : s_(context.shapes),
      types_(context.types),
      ops_(context.ops),
      epsilon_(context.config.rms_norm_eps),
      declaration_([&] {
        FreezeParts(context.config, context.unit, context.shapes, declaration);
        return std::move(declaration);
      }()) {}

BoundPass DeclaredNode::Bind(Pass pass, absl::Span<const OperandMemory> operands) const {
  BoundTensors tensors(declaration_, pass, operands, types_, ops_);
  BoundPass code = pass == Pass::kBackward ? BindBackward(tensors) : BindForward(tensors);
  tensors.CheckAllUsed();
  return tensors.WithConversions(std::move(code));
}

}  // namespace tandem::model
