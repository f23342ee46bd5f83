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
    return [made = in.Value("made"), returned = in.Value("returned"), rows = Rows(in)]() mutable {
      rows.Back(made, returned);
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [grad_returned = in.Gradient("returned"), grad_made = in.OverwrittenGradient("made"),
            rows = Rows(in)]() mutable { rows.There(grad_returned, grad_made); };
  }

  RowExchange Rows(BoundTensors& in) const {
    return {in.Communicator(), s_.exact_chunks ? in.Value("counts") : at::Tensor()};
  }
};

}  // namespace

std::unique_ptr<Node> MakeCombineNode(const NodeContext& context) {
  return std::make_unique<CombineNode>(context);
}

}  // namespace tandem::model
