// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "model/row_exchange.h"

namespace tandem::model {
namespace {

class DispatchNode final : public DeclaredNode {
 public:
  explicit DispatchNode(const NodeContext& context)
      : DeclaredNode(context, DeclareDispatch(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [sent = in.Value("sent"), slots = in.Value("sent_slots"),
            probabilities = in.Value("sent_probabilities"), received = in.Value("received"),
            received_slots = in.Value("received_slots"),
            received_probabilities = in.Value("received_probabilities"),
            rows = RowExchange::Of(in, s_)]() mutable {
      rows.There(sent, received);
      if (rows.exact()) {
        received_slots.fill_(-1);  // behind what is received
      }
      rows.There(slots, received_slots);
      rows.There(probabilities, received_probabilities);
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [grad_received = in.Gradient("received"),
            grad_received_probabilities = in.Gradient("received_probabilities"),
            grad_sent = in.OverwrittenGradient("sent"),
            grad_sent_probabilities = in.OverwrittenGradient("sent_probabilities"),
            rows = RowExchange::Of(in, s_)]() mutable {
      rows.Back(grad_received_probabilities, grad_sent_probabilities);
      rows.Back(grad_received, grad_sent);
    };
  }
};

}  // namespace

std::unique_ptr<Node> MakeDispatchNode(const NodeContext& context) {
  return std::make_unique<DispatchNode>(context);
}

}  // namespace tandem::model
