// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"
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
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::SparseOperations& ops = ops_.sparse();
    const ops::Array chosen = in.Value("chosen");
    const ops::Array place = in.Scratch("place");
    const ops::Array counts = s_.exact_chunks ? in.Value("sent_counts") : in.Scratch("sent_counts");
    ops::Calls calls;
    calls.Add(ops.PlanSends(chosen, s_.local_experts, s_.chunk_rows(), counts, place, in.Work("sort_work")));
    calls.Add(ops.Permute(in.Value("normed"), place, /*first=*/0, in.Value("sent")));
    calls.Add(ops.SendSlots(chosen, in.Value("probabilities"), place, s_.local_experts,
                            in.Value("sent_slots"), in.Value("sent_probabilities")));
    return calls;
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const ops::SparseOperations& ops = ops_.sparse();
    const ops::Array chosen = in.Value("chosen");
    const ops::Array place = in.Scratch("place");
    ops::Calls calls;
    calls.Add(ops.PlanSends(chosen, s_.local_experts, s_.chunk_rows(), in.Scratch("sent_counts"), place,
                            in.Work("sort_work")));
    calls.Add(ops.Unpermute(in.Gradient("sent"), place, /*first=*/0, in.AddsToGradient("normed"),
                            in.Gradient("normed")));
    calls.Add(ops.CollectSlots(in.Gradient("sent_probabilities"), chosen, place, s_.local_experts,
                               in.AddsToGradient("probabilities"), in.Gradient("probabilities")));
    return calls;
  }
};

}  // namespace

std::unique_ptr<Node> MakePermuteNode(const NodeContext& context) {
  return std::make_unique<PermuteNode>(context);
}

}  // namespace tandem::model
