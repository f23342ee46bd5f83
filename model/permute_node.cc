// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/sparse_operations.h"

namespace tandem::model {
namespace {

class PermuteNode final : public DeclaredNode {
 public:
  explicit PermuteNode(const NodeContext& context)
      : DeclaredNode(context, kPermute.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    return [this, normed = in.Value("normed"), chosen = in.Value("chosen"),
            probabilities = in.Value("probabilities"), sent = in.Value("sent"),
            slots = in.Value("sent_slots"), sent_probabilities = in.Value("sent_probabilities"),
            place = in.Scratch("place"), work = in.Work("sort_work"),
            counts = s_.exact_chunks ? in.Value("sent_counts") : in.Scratch("sent_counts")]() mutable {
      const ops::SparseOperations& ops = ops_.sparse();
      ops.PlanSends(chosen, s_.local_experts, s_.chunk_rows(), counts, place, work);
      ops.Permute(normed, place, /*first=*/0, sent);
      ops.SendSlots(chosen, probabilities, place, s_.local_experts, slots, sent_probabilities);
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    return [this, chosen = in.Value("chosen"), grad_sent = in.Gradient("sent"),
            grad_sent_probabilities = in.Gradient("sent_probabilities"), grad_normed = in.Gradient("normed"),
            add_normed = in.AddsToGradient("normed"), grad_probabilities = in.Gradient("probabilities"),
            add_probabilities = in.AddsToGradient("probabilities"), place = in.Scratch("place"),
            work = in.Work("sort_work"), counts = in.Scratch("sent_counts")]() mutable {
      const ops::SparseOperations& ops = ops_.sparse();
      ops.PlanSends(chosen, s_.local_experts, s_.chunk_rows(), counts, place, work);
      ops.Unpermute(grad_sent, place, /*first=*/0, add_normed, grad_normed);
      ops.CollectSlots(grad_sent_probabilities, chosen, place, s_.local_experts, add_probabilities,
                       grad_probabilities);
    };
  }
};

}  // namespace

std::unique_ptr<Node> MakePermuteNode(const NodeContext& context) {
  return std::make_unique<PermuteNode>(context);
}

}  // namespace tandem::model
