// SPDX-License-Identifier: Apache-2.0
#include "model/declared_node.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "model/bound_tensors.h"

namespace tandem::model {

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
  BoundTensors tensors(declaration_, pass, operands, types_, ops_, communicator);
  BoundPass code = BindPass(pass, tensors);
  tensors.CheckAllUsed();
  return tensors.WithConversions(std::move(code));
}

at::Tensor DeclaredPasses::DocumentStarts(BoundTensors& in) const {
  if (!s_.packs_documents) {
    return {};
  }
  return in.Value("tokens").narrow(1, s_.batch.starts_column(), s_.length);
}

BoundPass DeclaredNode::BindPass(Pass pass, BoundTensors& in) const {
  return pass == Pass::kBackwardInput ? BindBackward(in) : BindForward(in);
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
