// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "model/row_exchange.h"

namespace tandem::model {
namespace {

class CombineNode final : public DeclaredNode {
 public:
  explicit CombineNode(const NodeContext& context) : DeclaredNode(context, DeclareCombine(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [made = in.Value("made"), returned = in.Value("returned"),
            rows = RowExchange::Of(in, s_)]() mutable { rows.Back(made, returned); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [grad_returned = in.Gradient("returned"), grad_made = in.OverwrittenGradient("made"),
            rows = RowExchange::Of(in, s_)]() mutable { rows.There(grad_returned, grad_made); };
  }
};

}  // namespace

std::unique_ptr<Node> MakeCombineNode(const NodeContext& context) {
  return std::make_unique<CombineNode>(context);
}

}  // namespace tandem::model
