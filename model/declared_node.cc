#include "model/declared_node.h"

#include <utility>

#include "model/bound_tensors.h"

namespace tandem::model {

DeclaredNode::DeclaredNode(const NodeContext& context, NodeDeclaration declaration)
    : s_(context.shapes),
      type_(context.type),
      ops_(context.ops),
      epsilon_(context.config.rms_norm_eps),
      declaration_([&] {
        FreezeParts(context.config, context.unit, context.shapes.tokens, declaration);
        return std::move(declaration);
      }()) {}

BoundPass DeclaredNode::Bind(Pass pass, absl::Span<const OperandMemory> operands) const {
  BoundTensors tensors(declaration_, pass, operands, type_, ops_);
  BoundPass bound = pass == Pass::kBackward ? BindBackward(tensors) : BindForward(tensors);
  tensors.CheckAllUsed();
  return bound;
}

}  // namespace tandem::model
