// SPDX-License-Identifier: Apache-2.0
#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/sparse_operations.h"

namespace tandem::model {
namespace {

// A row of `made` is a token where experts are not shared among ranks; otherwise `place` says where the rows
// of each token are.
class FinishNode final : public DeclaredNode {
 public:
  explicit FinishNode(const NodeContext& context) : DeclaredNode(context, kFinish.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array shared = s_.shared_inner > 0 ? in.Value("shared") : ops::Array();
    const ops::Array x = in.Value("x");
    const ops::Array made = in.Value("made");
    const ops::Array hidden = in.Value("hidden");
    ops::Calls calls;
    const ops::Array place = Plan(in, calls);
    if (!hidden.defined()) {
      return [] {};  // it was kept
    }
    calls.Add(place.defined() ? ops_.sparse().Unpermute(made, place, /*first=*/0, /*add=*/false, hidden)
                              : ops_.Copy(made, hidden));
    if (shared.defined()) {
      calls.Add(ops_.Add(shared, hidden));
    }
    calls.Add(ops_.Add(x, hidden));
    return calls;
  }

  BoundPass BindBackward(BoundArrays& in) const override {
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array grad_x = in.Gradient("x");
    const ops::Array grad_made = in.OverwrittenGradient("made");
    ops::Calls calls;
    const ops::Array place = Plan(in, calls);
    calls.Add(place.defined() ? ops_.sparse().Permute(grad_hidden, place, /*first=*/0, grad_made)
                              : ops_.Copy(grad_hidden, grad_made));
    if (s_.shared_inner > 0) {
      calls.Add(ops_.Copy(grad_hidden, in.OverwrittenGradient("shared")));
    }
    calls.Add(in.AddsToGradient("x") ? ops_.Add(grad_hidden, grad_x) : ops_.Copy(grad_hidden, grad_x));
    return calls;
  }

  // Not defined where a row is a token.
  ops::Array Plan(BoundArrays& in, ops::Calls& calls) const {
    if (s_.expert_ranks == 1) {
      return {};
    }
    const ops::Array place = in.Scratch("place");
    calls.Add(ops_.sparse().PlanSends(in.Value("chosen"), s_.local_experts, s_.chunk_rows(),
                                      in.Scratch("sent_counts"), place, in.Work("sort_work")));
    return place;
  }
};

}  // namespace

std::unique_ptr<Node> MakeFinishNode(const NodeContext& context) {
  return std::make_unique<FinishNode>(context);
}

}  // namespace tandem::model
