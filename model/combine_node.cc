// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

class CombineNode final : public DeclaredNode {
 public:
  explicit CombineNode(const NodeContext& context) : DeclaredNode(context, DeclareCombine(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [made = in.Value("made"), returned = in.Value("returned"),
            &communicator = in.Communicator()]() mutable { communicator.AllToAll(made, returned); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [grad_returned = in.Gradient("returned"), grad_made = in.OverwrittenGradient("made"),
            &communicator = in.Communicator()]() mutable { communicator.AllToAll(grad_returned, grad_made); };
  }
};

}  // namespace

std::unique_ptr<Node> MakeCombineNode(const NodeContext& context) {
  return std::make_unique<CombineNode>(context);
}

}  // namespace tandem::model
