// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <stdexcept>

#include "comm/communicator.h"
#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {
namespace {

class SizesNode final : public DeclaredNode {
 public:
  explicit SizesNode(const NodeContext& context) : DeclaredNode(context, DeclareSizes(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    const bool copies = ExchangedCounts(s_).on_host;
    return [copies, sent = in.Value("sent_counts"), counts = in.Value("counts"),
            gathered = copies ? in.Scratch("gathered") : at::Tensor(),
            &communicator = in.Communicator()]() mutable {
      communicator.AllGather(sent, copies ? gathered : counts);
      if (copies) {
        counts.copy_(gathered, /*non_blocking=*/true);
      }
    };
  }

  BoundPass BindBackward(BoundTensors&) const override { throw std::logic_error("sizes have no gradients"); }
};

}  // namespace

std::unique_ptr<Node> MakeSizesNode(const NodeContext& context) {
  return std::make_unique<SizesNode>(context);
}

}  // namespace tandem::model
