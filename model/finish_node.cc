// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include "model/bound_tensors.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"
#include "ops/sparse_operations.h"

namespace tandem::model {
namespace {

// Where the rows of each token are; undefined where a row is a token.
struct Sends {
  at::Tensor chosen, place, counts;
  ops::Workspace work;
};

class FinishNode final : public DeclaredNode {
 public:
  explicit FinishNode(const NodeContext& context) : DeclaredNode(context, kFinish.declare(context.shapes)) {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    const at::Tensor shared = s_.shared_inner > 0 ? in.Value("shared") : at::Tensor();
    return [this, shared, x = in.Value("x"), made = in.Value("made"), hidden = in.Value("hidden"),
            sends = SendsOf(in)]() mutable {
      if (!hidden.defined()) {
        return;  // it was kept
      }
      if (sends.chosen.defined()) {
        Plan(sends);
        ops_.sparse().Unpermute(made, sends.place, /*first=*/0, /*add=*/false, hidden);
      } else {
        hidden.copy_(made);
      }
      if (shared.defined()) {
        hidden.add_(shared);
      }
      hidden.add_(x);
    };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    const at::Tensor grad_shared = s_.shared_inner > 0 ? in.OverwrittenGradient("shared") : at::Tensor();
    return [this, grad_shared, grad_hidden = in.Gradient("hidden"), grad_x = in.Gradient("x"),
            add_x = in.AddsToGradient("x"), grad_made = in.OverwrittenGradient("made"),
            sends = SendsOf(in)]() mutable {
      if (sends.chosen.defined()) {
        Plan(sends);
        ops_.sparse().Permute(grad_hidden, sends.place, /*first=*/0, grad_made);
      } else {
        grad_made.copy_(grad_hidden);
      }
      if (grad_shared.defined()) {
        grad_shared.copy_(grad_hidden);
      }
      if (add_x) {
        grad_x.add_(grad_hidden);
      } else {
        grad_x.copy_(grad_hidden);
      }
    };
  }

  Sends SendsOf(BoundTensors& in) const {
    if (s_.expert_ranks == 1) {
      return {};
    }
    return {.chosen = in.Value("chosen"),
            .place = in.Scratch("place"),
            .counts = in.Scratch("sent_counts"),
            .work = in.Work("sort_work")};
  }

  void Plan(Sends& sends) const {
    ops_.sparse().PlanSends(sends.chosen, s_.local_experts, s_.chunk_rows(), sends.counts, sends.place,
                            sends.work);
  }
};

}  // namespace

std::unique_ptr<Node> MakeFinishNode(const NodeContext& context) {
  return std::make_unique<FinishNode>(context);
}

}  // namespace tandem::model
