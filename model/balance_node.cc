// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "comm/communicator.h"
#include "model/bound_arrays.h"
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
  BoundPass BindForward(BoundArrays& in) const override {
    comm::Communicator& communicator = in.Communicator();
    const ops::Array logits = in.Value("logits");
    const ops::Array counts = in.Value("balance_counts");
    const ops::Array by_rank = in.Scratch("by_rank");
    const ops::Array own = by_rank.Rows(communicator.rank(), 1);
    ops::Calls calls;
    calls.Add(ops_.sparse().CountLargest(s_.router, logits, own));
    calls.Add(
        [own = own.memory(), all = by_rank.memory(), &communicator] { communicator.AllGather(own, all); });
    calls.Add(ops_.sparse().MeanCounts(by_rank, s_.tokens * s_.chosen, in.ContinuesState("seen"),
                                       in.State("seen"), counts));
    calls.Add(ops_.sparse().RouterLosses(s_.router, s_.router_losses, logits, counts, in.Value("losses"),
                                         in.Work("router_work")));
    return calls;
  }

  BoundPass BindBackward(BoundArrays&) const override {
    throw std::logic_error("the tokens of the balance have no gradient");
  }
};

}  // namespace

std::unique_ptr<Node> MakeBalanceNode(const NodeContext& context) {
  return std::make_unique<BalanceNode>(context);
}

}  // namespace tandem::model
