// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <stdexcept>

#include "comm/communicator.h"
#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/sparse_operations.h"

namespace tandem::model {
namespace {

class BalanceNode final : public DeclaredNode {
 public:
  explicit BalanceNode(const NodeContext& context)
      : DeclaredNode(context, kBalance.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    comm::Communicator& communicator = in.Communicator();
    at::Tensor by_rank = in.Scratch("by_rank");
    return [this, logits = in.Value("logits"), counts = in.Value("balance_counts"),
            losses = in.Value("losses"), seen = in.State("seen"), continues = in.ContinuesState("seen"),
            by_rank, own = by_rank.select(0, communicator.rank()), work = in.Work("router_work"),
            &communicator]() mutable {
      ops_.sparse().CountLargest(s_.router, logits, own);
      communicator.AllGather(own, by_rank);
      ops_.sparse().MeanCounts(by_rank, s_.tokens * s_.chosen, continues, seen, counts);
      ops_.sparse().RouterLosses(s_.router, s_.router_losses, logits, counts, losses, work);
    };
  }

  BoundPass BindBackward(BoundTensors&) const override {
    throw std::logic_error("the tokens of the balance have no gradient");
  }
};

}  // namespace

std::unique_ptr<Node> MakeBalanceNode(const NodeContext& context) {
  return std::make_unique<BalanceNode>(context);
}

}  // namespace tandem::model
